import { furtherNode } from "./bench-nodes.ts";
import { atMost } from "./reach.ts";
import type { Figure } from "./report.ts";

/** What `make bench NODES=100` measures. What is less than a tick of the kernel's clock in ten seconds cannot be measured. */
export const nodesFigures: readonly Figure[] = [
  {
    id: "memory",
    title: "resident memory",
    unit: "MiB",
    many: false,
    reach: [atMost(1, furtherNode, "MiB")],
  },
  {
    id: "cpu",
    title: "CPU, idle",
    unit: "% of a core",
    many: false,
    reach: [atMost(0.02, furtherNode, "%")],
  },
];
