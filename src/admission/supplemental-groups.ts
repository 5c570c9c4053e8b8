import type { PodAdmitHandler } from "./admit-attributes.ts";

/** supplementalGroupsPolicy Strict needs a runtime that can leave out the image's groups.
 *  @see https://kubernetes.io/docs/tasks/configure-pod-container/security-context/#supplementalgroupspolicy */
export const supplementalGroupsSupported: PodAdmitHandler = ({ pod, node }) => {
  if (pod.spec.securityContext?.supplementalGroupsPolicy !== "Strict") return undefined;
  if (node.status?.features?.supplementalGroupsPolicy === true) return undefined;
  return {
    reason: "SupplementalGroupsPolicyNotSupported",
    message: "SupplementalGroupsPolicy=Strict is not supported in this node",
  };
};
