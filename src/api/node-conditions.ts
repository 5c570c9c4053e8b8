import type { NodeCondition } from "../objects.ts";

/** Node conditions that are healthy when true; all others are healthy when false. */
const goodWhenTrue: ReadonlySet<string> = new Set(["Ready", "KubeletReachable", "TargetPrivileges"]);

/** True for a Node condition that indicates a problem. Pure. */
export function isProblem({ type, status }: Pick<NodeCondition, "type" | "status">): boolean {
  return (status === "True") !== goodWhenTrue.has(type);
}
