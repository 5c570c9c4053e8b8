import type { ChildProcess } from "node:child_process";
import { createWriteStream, existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { tailOf } from "../harness/daemons.ts";
import type { StartOptions } from "../harness/processes.ts";
import { focusOn } from "./focus.ts";
import { type SuiteOutcome, outcomesOf } from "./outcomes.ts";
import { createProgress } from "./progress.ts";

/** A suite to be run by ginkgo. */
export interface GinkgoRun {
  /** The program ginkgo, and that of the suite. */
  readonly ginkgo: string;
  readonly suite: string;
  /** What the suite calls itself: its tests' names are matched with it before them. */
  readonly description: string;
  readonly names: readonly string[];
  /** Tests side by side. */
  readonly processes: number;
  /** The suite's own flags. */
  readonly args: readonly string[];
  /** Where reports and logs are left. */
  readonly folder: string;
  start(argv: readonly string[], options: StartOptions): ChildProcess;
  readonly say: (line: string) => void;
}

/** Runs the named tests of a suite, each once. @throws when ginkgo ends without a report, with the end of its output. */
export async function runGinkgo(run: GinkgoRun): Promise<SuiteOutcome> {
  const log = join(run.folder, "output.log");
  const report = join(run.folder, "report.json");
  const child = run.start(ginkgoArgv(run), {
    cwd: run.folder,
    stdio: ["ignore", "pipe", "pipe"],
    // Programs that tests start, kubectl first, keep what they like to keep there.
    env: { HOME: run.folder },
  });
  const ended = new Promise<number>((resolve, reject) => {
    child.once("error", reject);
    child.once("close", (code) => resolve(code ?? 1));
  });
  const file = createWriteStream(log);
  const progress = createProgress(run.names.length, run.say);
  for (const stream of [child.stdout, child.stderr]) stream?.pipe(file, { end: false });
  if (child.stdout) createInterface({ input: child.stdout }).on("line", progress);
  const code = await ended;
  await new Promise<void>((resolve) => file.end(resolve));
  if (!existsSync(report)) throw new Error(`ginkgo ended with ${code} and left no report:\n${tailOf(log, 30)}`);
  return outcomesOf(readFileSync(report, "utf8"));
}

/** The command line: all tests of a suite that fail, and none a second time. */
export function ginkgoArgv(run: Omit<GinkgoRun, "start" | "say">): readonly string[] {
  return [
    run.ginkgo,
    `--procs=${run.processes}`,
    "--timeout=6h",
    "--flake-attempts=1",
    "--no-color",
    "-v",
    "--silence-skips",
    "--json-report=report.json",
    `--output-dir=${run.folder}`,
    ...focusOn(run.description, run.names).map((expression) => `--focus=${expression}`),
    run.suite,
    "--",
    ...run.args,
  ];
}
