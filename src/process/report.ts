import type { Clock } from "../lib/clock.ts";
import { rfc3339 } from "../lib/rfc3339.ts";
import type { Reports } from "../report/notes.ts";
import { type NodeReport, nodeReport } from "../report/summary.ts";
import { graftletVersion, kubeletVersion } from "../version.ts";

/** A process and its nodes at one moment: what `graftlet status -o json` prints. */
export interface ProcessReport {
  readonly version: string;
  readonly kubernetes: string;
  readonly pid: number;
  /** RFC 3339: when it began, and when this was said. */
  readonly since: string;
  readonly at: string;
  readonly nodes: readonly NodeReport[];
}

/** What a process says of itself and its nodes. Call it at the process' start. */
export function processReport({ nodes, notes }: Reports, clock: Pick<Clock, "now">): () => ProcessReport {
  const since = rfc3339(clock.now());
  return () => ({
    version: graftletVersion,
    kubernetes: kubeletVersion,
    pid: process.pid,
    since,
    at: rfc3339(clock.now()),
    nodes: nodes.map((node) => nodeReport(node, notes)),
  });
}
