import type { Node, Pod } from "../objects.ts";
import type { Rejection } from "../pipeline.ts";

/** Admission attributes: the pod to admit and the node state it is checked against. */
export interface PodAdmitAttributes {
  readonly pod: Pod;
  /** Active pods of the node: admitted, and not ended. */
  readonly otherPods: readonly Pod[];
  readonly node: Node;
  /** The node's allocatable resources, by name. */
  readonly allocatable: Readonly<Record<string, string>>;
}

/** One admission check. @returns the rejection in the kubelet's words, or undefined. */
export type PodAdmitHandler = (candidate: PodAdmitAttributes) => Rejection | undefined;

/** The kubelet's rejection for a failed scheduler predicate. */
export function predicateFailed(name: string, why: string): Rejection {
  return { reason: name, message: `Predicate ${name} failed: ${why}` };
}
