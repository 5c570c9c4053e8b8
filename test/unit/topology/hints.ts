import { idsOfNodes, numaNodes } from "../../../src/lib/numa-nodes.ts";
import type { TopologyHint, TopologyHints } from "../../../src/topology-hints.ts";

/** Reads a hint: the digits of its nodes, or `any`, and a `+` if it is preferred. */
export function hint(text: string): TopologyHint {
  const preferred = text.endsWith("+");
  const nodes = text.replace("+", "");
  return { nodes: nodes === "any" ? undefined : numaNodes(nodes.split("").map(Number)), preferred };
}

export function shown({ nodes, preferred }: TopologyHint): string {
  return `${nodes === undefined ? "any" : idsOfNodes(nodes).join("")}${preferred ? "+" : ""}`;
}

/** Hints of one provider, by resource: `01+ 0`; undefined: it does not care. */
export function provider(lists: Readonly<Record<string, string | undefined>>): TopologyHints {
  return new Map(
    Object.entries(lists).map(([name, list]) => [
      name,
      list
        ?.split(" ")
        .filter((text) => text !== "")
        .map(hint),
    ]),
  );
}
