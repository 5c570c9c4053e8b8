import type { NodeCondition } from "../objects.ts";

/** Conditions of a Node that are good when they are true; any other is good when it is not. */
const goodWhenTrue: ReadonlySet<string> = new Set(["Ready", "KubeletReachable", "TargetPrivileges"]);

/** True for a condition of a Node that wants attention. Pure. */
export function isProblem({ type, status }: Pick<NodeCondition, "type" | "status">): boolean {
  return (status === "True") !== goodWhenTrue.has(type);
}
