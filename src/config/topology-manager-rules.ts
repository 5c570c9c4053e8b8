import { parseBool } from "./go-values.ts";
import type { KubeletConfiguration } from "./kubelet-fields.ts";
import { refuse } from "./refusal.ts";

/** Smallest value of max-allowable-numa-nodes, and its default. */
const leastMaxNodes = 8;

/** Checks the settings of the topology manager, with the kubelet's messages. Options are not checked with policy none. All options are
 *  stable, so the feature gates of alpha and beta options apply to none of them.
 *  (kubelet, cm/topologymanager/policy_options.go) @throws CodedError invalid_argument */
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
