import { type PodAdmitHandler, predicateFailed } from "./admit-attributes.ts";

/** Rejects a pod that is bound to another node. */
export const nodeNameMatches: PodAdmitHandler = ({ pod, node }) =>
  !pod.spec.nodeName || pod.spec.nodeName === node.metadata.name
    ? undefined
    : predicateFailed("NodeName", "node(s) didn't match the requested node name");
