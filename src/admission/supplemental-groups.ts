import type { Handler } from "./candidate.ts";

/** A pod that wants exactly the groups it names needs a runtime that can leave out those of the image.
 *  @see https://kubernetes.io/docs/tasks/configure-pod-container/security-context/#supplementalgroupspolicy */
export const supplementalGroupsServed: Handler = ({ pod, node }) => {
  if (pod.spec.securityContext?.supplementalGroupsPolicy !== "Strict") return undefined;
  if (node.status?.features?.supplementalGroupsPolicy === true) return undefined;
  return {
    reason: "SupplementalGroupsPolicyNotSupported",
    message: "SupplementalGroupsPolicy=Strict is not supported in this node",
  };
};
