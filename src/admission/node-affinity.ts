import type { Node, Pod } from "../objects.ts";
import { termMatches } from "../pod/node-selector.ts";
import { type PodAdmitHandler, predicateFailed } from "./admit-attributes.ts";

/** Rejects a pod whose node selector or required node affinity does not match the node.
 *  @see https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/ */
export const nodeAffinityMatches: PodAdmitHandler = ({ pod, node }) =>
  selectorMatches(pod, node) && affinityMatches(pod, node)
    ? undefined
    : predicateFailed("NodeAffinity", "node(s) didn't match Pod's node affinity/selector");

function selectorMatches({ spec }: Pod, { metadata }: Node): boolean {
  return Object.entries(spec.nodeSelector ?? {}).every(([key, value]) => metadata.labels?.[key] === value);
}

/** Terms are ORed; a term without requirements matches nothing. */
function affinityMatches({ spec }: Pod, node: Node): boolean {
  const required = spec.affinity?.nodeAffinity?.requiredDuringSchedulingIgnoredDuringExecution;
  return !required || required.nodeSelectorTerms.some((term) => termMatches(term, node));
}
