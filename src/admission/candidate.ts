import type { Node, Pod } from "../objects.ts";
import type { Rejection } from "../pipeline.ts";

/** A pod at the door, and what it has to fit in with. */
export interface Candidate {
  readonly pod: Pod;
  /** Pods that are on the node already and have not ended. */
  readonly others: readonly Pod[];
  readonly node: Node;
  /** The node's allocatable resources, by name. */
  readonly allocatable: Readonly<Record<string, string>>;
}

/** Looks at one side of a candidate. @returns the refusal, in the kubelet's words, or undefined. */
export type Handler = (candidate: Candidate) => Rejection | undefined;

/** The words in which the kubelet tells of a scheduler's predicate that failed. */
export function predicateFailed(name: string, why: string): Rejection {
  return { reason: name, message: `Predicate ${name} failed: ${why}` };
}
