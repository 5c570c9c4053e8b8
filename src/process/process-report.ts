import type { Clock } from "../lib/clock.ts";
import { rfc3339 } from "../lib/rfc3339.ts";
import type { Reports } from "../report/notes.ts";
import { type NodeReport, nodeReport } from "../report/node-report.ts";
import { graftletVersion, kubeletVersion } from "../version.ts";

/** State of a process and its nodes, as printed by `graftlet status -o json`. */
export interface ProcessReport {
  readonly version: string;
  readonly kubernetes: string;
  readonly pid: number;
  /** RFC 3339: time of the process start, and of this report. */
  readonly since: string;
  readonly at: string;
  readonly nodes: readonly NodeReport[];
}

/** Creates the reporter of a process and its nodes. To be called at the process start. */
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
