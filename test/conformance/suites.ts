import { homedir } from "node:os";
import { join } from "node:path";
import type { SuiteProgram } from "../harness/tools.ts";
import { isGuest } from "../matrix.ts";
import type { SuiteName } from "./list.ts";
import { runE2e } from "./suite-e2e.ts";
import { runE2eNode } from "./suite-node.ts";
import type { ConformanceOptions } from "./options.ts";
import type { RunSuite } from "./suite-run.ts";

/** What each suite is run with. */
export const suites: Readonly<Record<SuiteName, { readonly program: SuiteProgram; readonly run: RunSuite }>> = {
  e2e: { program: "e2e.test", run: runE2e },
  e2e_node: { program: "e2e_node.test", run: runE2eNode },
};

/** True for a suite that is run at all. That of a node has an API server alone, no Services and no Pod that graftlet could run in, and reads
 *  files and cgroups of the machine that it is on: in a guest it is run with the agent inside, and the other one with graftlet outside;
 *  a kubelet is inside for both. */
export function runsSuite(
  suite: SuiteName,
  { agent, network, provider }: Pick<ConformanceOptions, "agent" | "network" | "provider">,
): boolean {
  if (provider === "guest") return suite === "e2e_node" || agent === "kubelet";
  return suite === "e2e" || (network === "routed" && !isGuest(provider));
}

/** A folder below the cache for what a run leaves. @param parts of its name; empty ones are left out. */
export function runFolder(...parts: readonly string[]): string {
  const cache = process.env.XDG_CACHE_HOME ?? join(homedir(), ".cache");
  return join(cache, "graftlet", "conformance", parts.filter(Boolean).join("-"));
}
