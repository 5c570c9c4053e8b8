import { graftletProgram } from "./agent.ts";
import type { Cluster } from "./cluster.ts";

/** How a graftlet that was not to run ended. */
export interface Refusal {
  readonly code: number;
  /** What it said but for its log lines. */
  readonly said: readonly string[];
}

/** Runs graftlet on the cluster's machine to its end, which is expected within ten seconds or so. */
export async function runToEnd(cluster: Cluster, args: readonly string[]): Promise<Refusal> {
  const { code, stdout, stderr } = await cluster.runInside([process.execPath, graftletProgram(), ...args], {
    timeoutMs: 60_000,
  });
  const said = `${stdout}${stderr}`.split("\n").filter((line) => line !== "" && !line.startsWith("{"));
  return { code, said };
}
