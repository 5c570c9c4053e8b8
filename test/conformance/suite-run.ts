import { mkdirSync, rmSync, symlinkSync } from "node:fs";
import { join } from "node:path";
import type { SuiteProgram } from "../harness/tools.ts";
import type { SuiteOutcome } from "./outcomes.ts";
import type { RunLimits } from "./ginkgo.ts";
import type { AgentName, Network, Provider } from "./options.ts";
import type { TestEnd } from "./progress.ts";

/** A suite's run: which of its tests, on whose node. */
export interface SuiteRun {
  readonly provider: Provider;
  readonly agent: AgentName;
  readonly network: Network;
  readonly names: readonly string[];
  /** Where the suites' programs lie. */
  readonly programs: string;
  /** Where what the run leaves is kept; emptied first. */
  readonly folder: string;
  /** How many tests run side by side; five or six unless given. */
  readonly processes?: number;
  readonly limits?: RunLimits;
  /** Called for each test that has ended. */
  readonly ended: (end: TestEnd) => void;
  readonly say: (line: string) => void;
}

/** Brings up what a suite needs, runs its tests, and takes all of it down. */
export type RunSuite = (run: SuiteRun) => Promise<SuiteOutcome>;

/** A folder with the suite's program in it, which is run where it lies, and one for its own reports.
 *  @returns the program and the folder of reports. */
export function prepareFolder(
  { programs, folder }: SuiteRun,
  program: SuiteProgram,
): { readonly suite: string; readonly reports: string } {
  rmSync(folder, { recursive: true, force: true });
  const reports = join(folder, "reports");
  mkdirSync(reports, { recursive: true });
  const suite = join(folder, program);
  symlinkSync(join(programs, program), suite);
  return { suite, reports };
}
