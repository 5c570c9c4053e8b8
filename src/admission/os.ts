import type { PodAdmitHandler } from "./admit-attributes.ts";

const osLabel = "kubernetes.io/os";
const nodeOs = "linux";

/** Rejects a pod whose `kubernetes.io/os` label names another operating system. */
export const osLabelMatches: PodAdmitHandler = ({ pod }) => {
  const wanted = pod.metadata.labels?.[osLabel];
  if (wanted === undefined || wanted === nodeOs) return undefined;
  return {
    reason: "PodOSSelectorNodeLabelDoesNotMatch",
    message: "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label",
  };
};

/** @see https://kubernetes.io/docs/concepts/workloads/pods/#pod-os */
export const osFieldMatches: PodAdmitHandler = ({ pod }) => {
  if (!pod.spec.os || pod.spec.os.name === nodeOs) return undefined;
  return { reason: "PodOSNotSupported", message: "Failed to admit pod as the OS field doesn't match node OS" };
};
