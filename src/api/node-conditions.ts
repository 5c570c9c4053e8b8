import type { NodeCondition } from "../objects.ts";

/** Node conditions that are healthy when true; all others are healthy when false. */
const goodWhenTrue: ReadonlySet<string> = new Set(["Ready", "KubeletReachable", "TargetPrivileges"]);

/** Node conditions that report a setting and never a problem. */
const informational: ReadonlySet<string> = new Set(["DaemonSetsSkipped"]);

/** True for a Node condition that indicates a problem. Pure. */
export function isProblem({ type, status }: Pick<NodeCondition, "type" | "status">): boolean {
  return !informational.has(type) && (status === "True") !== goodWhenTrue.has(type);
}
