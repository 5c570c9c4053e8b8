import { gateEnabled } from "./feature-gates.ts";
import { parseBool, quantitySign } from "./go-values.ts";
import type { KubeletConfiguration } from "./kubelet-fields.ts";
import { refuse } from "./refusal.ts";

/** Feature gates by option of the static policy; undefined for options without one.
 *  @see https://kubernetes.io/docs/reference/node/node-kubelet-config/cpu-policies/ */
const optionGates: Readonly<Record<string, "Alpha" | "Beta" | undefined>> = {
  "full-pcpus-only": undefined,
  "strict-cpu-reservation": undefined,
  "prefer-align-cpus-by-uncorecache": undefined,
  "distribute-cpus-across-numa": "Beta",
  "align-by-socket": "Alpha",
  "distribute-cpus-across-cores": "Alpha",
};

/** Options that exclude each other. */
const exclusive = [
  ["full-pcpus-only", "distribute-cpus-across-cores"],
  ["distribute-cpus-across-numa", "distribute-cpus-across-cores"],
  ["prefer-align-cpus-by-uncorecache", "distribute-cpus-across-cores"],
  ["prefer-align-cpus-by-uncorecache", "distribute-cpus-across-numa"],
] as const;

const optionsSetting = "cpuManagerPolicyOptions (--cpu-manager-policy-options)";

/** Checks the settings of the CPU manager, with the kubelet's messages. (kubelet, cm/cpumanager/policy_options.go)
 *  @throws CodedError invalid_argument */
export function cpuManager(config: KubeletConfiguration): void {
  const { cpuManagerPolicy: policy, cpuManagerPolicyOptions: options, reservedSystemCPUs } = config;
  if (policy === "none") {
    if (Object.keys(options).length > 0)
      throw refuse(
        optionsSetting,
        options,
        "None policy: received unsupported options; set cpuManagerPolicy to static",
      );
    return;
  }
  const reserves = [config.kubeReserved, config.systemReserved].some((list) => quantitySign(list["cpu"] ?? "0") === 1);
  if (reservedSystemCPUs === "" && !reserves)
    throw refuse(
      "cpuManagerPolicy (--cpu-manager-policy)",
      policy,
      "the static policy requires systemreserved.cpu + kubereserved.cpu to be greater than zero",
    );
  checkOptions(config);
}

function checkOptions({ cpuManagerPolicyOptions: options, featureGates }: KubeletConfiguration): void {
  const wrong = (words: string) => refuse(optionsSetting, options, words);
  for (const [name, value] of Object.entries(options)) {
    if (!Object.hasOwn(optionGates, name)) throw wrong(`unknown CPU Manager Policy option: "${name}"`);
    const stage = optionGates[name];
    if (stage && !gateEnabled(featureGates, `CPUManagerPolicy${stage}Options`))
      throw wrong(`CPU Manager Policy ${stage}-level Options not enabled, but option "${name}" provided`);
    if (parseBool(value) === undefined)
      throw wrong(`bad value for option "${name}": strconv.ParseBool: parsing "${value}": invalid syntax`);
  }
  const isOn = (name: string) => parseBool(options[name] ?? "") === true;
  const pair = exclusive.find(([a, b]) => isOn(a) && isOn(b));
  if (pair) throw wrong(`static policy options ${pair[0]} and ${pair[1]} can not be used at the same time`);
}
