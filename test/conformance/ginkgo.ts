import type { ChildProcess } from "node:child_process";
import { createWriteStream, existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { tailOf } from "../harness/daemons.ts";
import type { StartOptions } from "../harness/processes.ts";
import { focusOn } from "./focus.ts";
import { type SuiteOutcome, outcomesOf } from "./outcomes.ts";
import { createEnds, type TestEnd } from "./progress.ts";

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
  /** Variables of the suite's own. */
  readonly env?: Readonly<Record<string, string>>;
  /** Where reports and logs are left. */
  readonly folder: string;
  start(argv: readonly string[], options: StartOptions): ChildProcess;
  /** Called for each test that has ended. */
  readonly ended: (end: TestEnd) => void;
  /** When a run is given up; never before six hours unless given. */
  readonly limits?: RunLimits | undefined;
}

/** When a run is given up, in milliseconds: tests that still run are interrupted, and those after them are not run. */
export interface RunLimits {
  readonly wholeMs: number;
  /** The longest time in which no test ends: what still runs then hangs. */
  readonly quietMs: number;
}

/** How long ginkgo may take to clean up after each interrupt; the last one cannot be refused. */
const interrupts: readonly (readonly [NodeJS.Signals, number])[] = [
  ["SIGINT", 120_000],
  ["SIGINT", 60_000],
  ["SIGKILL", 10_000],
];

/** Runs the named tests of a suite, each once. @throws when ginkgo ends without a report, with the end of its output. */
export async function runGinkgo(run: GinkgoRun): Promise<SuiteOutcome> {
  const log = join(run.folder, "output.log");
  const report = join(run.folder, "report.json");
  const child = run.start(ginkgoArgv(run), {
    cwd: run.folder,
    stdio: ["ignore", "pipe", "pipe"],
    // Programs that tests start, kubectl first, keep what they like to keep there.
    env: { HOME: run.folder, ...run.env },
    // The suite's processes are interrupted as one.
    detached: true,
  });
  const ended = new Promise<number>((resolve, reject) => {
    child.once("error", reject);
    child.once("close", (code) => resolve(code ?? 1));
  });
  const file = createWriteStream(log);
  using watch = watchLimits(child, run.limits);
  const follow = createEnds((end) => {
    watch.moved();
    run.ended(end);
  });
  for (const stream of [child.stdout, child.stderr]) stream?.pipe(file, { end: false });
  if (child.stdout) createInterface({ input: child.stdout }).on("line", follow);
  const code = await ended;
  await new Promise<void>((resolve) => file.end(resolve));
  if (!existsSync(report)) throw new Error(`ginkgo ended with ${code} and left no report:\n${tailOf(log, 30)}`);
  return outcomesOf(readFileSync(report, "utf8"));
}

/** Interrupts the child and all its descendants once a limit has passed, and again when that does not end them. The end of this
 *  process by a signal is theirs. */
function watchLimits(child: ChildProcess, limits: RunLimits | undefined): Disposable & { moved(): void } {
  const timers = new Set<NodeJS.Timeout>();
  const after = (ms: number, act: () => void) => {
    const timer = setTimeout(act, ms);
    timers.add(timer);
    return timer;
  };
  const end = ([first, ...rest]: typeof interrupts): void => {
    if (!first || child.pid === undefined) return;
    process.kill(-child.pid, first[0]);
    after(first[1], () => end(rest));
  };
  const die = (signal: NodeJS.Signals): void => {
    if (child.pid !== undefined) process.kill(-child.pid, "SIGKILL");
    process.kill(process.pid, signal);
  };
  for (const signal of ["SIGINT", "SIGTERM"] as const) process.once(signal, die);
  let quiet = limits && after(limits.quietMs, () => end(interrupts));
  if (limits) after(limits.wholeMs, () => end(interrupts));
  return {
    moved() {
      if (!limits) return;
      clearTimeout(quiet);
      quiet = after(limits.quietMs, () => end(interrupts));
    },
    [Symbol.dispose]() {
      for (const timer of timers) clearTimeout(timer);
      for (const signal of ["SIGINT", "SIGTERM"] as const) process.off(signal, die);
    },
  };
}

/** The command line: all tests of a suite that fail, and none a second time. */
export function ginkgoArgv(run: Omit<GinkgoRun, "start" | "ended" | "limits">): readonly string[] {
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
