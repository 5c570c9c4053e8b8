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

/** Checks that no resource is reserved twice on a NUMA node; the error has the kubelet's message. Types and amounts are checked when the
 *  field is parsed. (kubelet, apis/config/validation/validation_reserved_memory.go) @throws CodedError invalid_argument */
export function reservedMemory({ reservedMemory: reservations }: KubeletConfiguration): void {
  const seen = new Set<string>();
  for (const { numaNode, limits } of reservations) {
    for (const name of Object.keys(limits)) {
      const key = `${numaNode} ${name}`;
      if (seen.has(key))
        throw refuse(
          "reservedMemory (--reserved-memory)",
          reservations,
          `the reserved memory has a duplicate value for NUMA node ${numaNode} and resource "${name}"`,
        );
      seen.add(key);
    }
  }
}

/** Smallest value of max-allowable-numa-nodes, and its default. */
const leastMaxNodes = 8;

/** Checks the settings of the topology manager, with the kubelet's messages. Options are not checked with policy none. All options
 *  are stable, so the feature gates for alpha and beta options do not matter. (kubelet, cm/topologymanager/policy_options.go)
 *  @throws CodedError invalid_argument */
export function topologyManager({
  topologyManagerPolicy: policy,
  topologyManagerPolicyOptions: options,
  cpuManagerPolicy,
  cpuManagerPolicyOptions,
}: KubeletConfiguration): void {
  if (policy === "none") return;
  const bySocket =
    cpuManagerPolicy === "static" && parseBool(cpuManagerPolicyOptions["align-by-socket"] ?? "") === true;
  if (policy === "single-numa-node" && bySocket)
    throw refuse(
      "topologyManagerPolicy (--topology-manager-policy)",
      policy,
      "Topolgy manager single-numa-node policy is incompatible with CPUManager align-by-socket policy option",
    );
  for (const [name, value] of Object.entries(options)) {
    const problem = optionProblem(name, value);
    if (problem !== undefined)
      throw refuse("topologyManagerPolicyOptions (--topology-manager-policy-options)", options, problem);
  }
}

function optionProblem(name: string, value: string): string | undefined {
  if (name === "prefer-closest-numa-nodes")
    return parseBool(value) === undefined
      ? `bad value for option "${name}": strconv.ParseBool: parsing "${value}": invalid syntax`
      : undefined;
  if (name !== "max-allowable-numa-nodes") return `unknown Topology Manager Policy option: "${name}"`;
  if (!/^[+-]?\d{1,9}$/.test(value))
    return `unable to convert policy option to integer "${name}": strconv.Atoi: parsing "${value}": invalid syntax`;
  return Number(value) < leastMaxNodes
    ? `the minimum value of "${name}" should not be less than ${leastMaxNodes}`
    : undefined;
}
