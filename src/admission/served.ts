import type { FieldChecker } from "../pipeline.ts";
import { fieldsOf } from "./decisions.ts";
import { claimedResources } from "./extended-resources.ts";
import { type Lacks, type LackingSettings, lacking } from "./lacking.ts";
import { podSpec } from "./pod-decisions.ts";

/** Finds the unsupported fields of a pod. Every field of a pod spec has an entry in a table: no pod ever runs with one of them ignored.
 *  @param lacks what the node's runtime and target cannot do; nothing if omitted.
 *  @see https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/ */
export function createServed(
  lacks: Lacks = async () => undefined,
  settings: LackingSettings = { cpuCfsQuota: true },
): FieldChecker {
  const judge = fieldsOf(podSpec);
  return {
    unsupportedFields: async (pod, signal) => [
      ...judge(pod.spec, "spec"),
      ...claimedResources(pod),
      ...(await lacking(pod, { lacks, ...settings }, signal)),
    ],
  };
}
