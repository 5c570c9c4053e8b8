import type { FieldChecker } from "../sync/ports.ts";
import { checkFields } from "./field-decisions.ts";
import { type FeatureCheck, type FeatureSettings, unsupportedFeatures } from "./unsupported-features.ts";
import { podSpec } from "./pod-decisions.ts";

/** Finds the unsupported fields of a pod. Every field of a pod spec has an entry in a decision table, so no field is silently ignored.
 *  @param checkFeature returns why the node's runtime or target lacks a feature; all features are assumed to be supported if omitted.
 *  @see https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/ */
export function createFieldChecker(
  checkFeature: FeatureCheck = async () => undefined,
  settings: FeatureSettings = { cpuCfsQuota: true },
): FieldChecker {
  const checkSpec = checkFields(podSpec);
  return {
    unsupportedFields: async (pod, signal) => [
      ...checkSpec(pod.spec, "spec"),
      ...(await unsupportedFeatures(pod, { checkFeature, ...settings }, signal)),
    ],
  };
}
