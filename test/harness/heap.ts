import { existsSync, readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import type { Agent } from "./agent.ts";
import { waitFor } from "./wait.ts";

/** What an agent's memory comes to once garbage has been collected, MiB: all that is alive, and the resident set. */
export interface Heap {
  readonly live: number;
  readonly rss: number;
}

/** The environment of an agent that `heapOf` can ask. @param file where it writes its answers. */
export function heapReporting(file: string): Record<string, string> {
  return {
    GRAFTLET_HEAP_REPORT: file,
    NODE_OPTIONS: `--import=${join(import.meta.dirname, "heap-report.ts")}`,
  };
}

/** Asks an agent that was started with `heapReporting(file)`. */
export async function heapOf(agent: Agent, file: string): Promise<Heap> {
  rmSync(file, { force: true });
  agent.signal("SIGUSR2");
  await waitFor("the agent's heap report", () => existsSync(file), { timeoutMs: 20_000 });
  const { live, rss } = JSON.parse(readFileSync(file, "utf8")) as Heap;
  return { live: live / 2 ** 20, rss: rss / 2 ** 20 };
}
