import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { isGuest } from "../test/matrix.ts";
import { type Job, type Outcome, runJobs } from "./run-jobs.ts";
import { conformanceJob, contractJobs, integrationJobs, jobsOf, sharing, tourJobs } from "./test-jobs.ts";

/** More files than these do not fail by chance: one in twenty, and three of few. */
const mostAgainOf = (files: number): number => Math.max(3, Math.ceil(files / 20));

/** No file takes longer, seconds. */
const limitSeconds = 900;

/** Number of the slowest files that are named. */
const namedSlowest = 10;

/** Runs parts of the tests side by side: node tools/run-tests.ts contract integration, or files by name. Which integration tests:
 *  ONLY, PROVIDER and ALL=1 in the environment; `more` is what continuous integration runs besides. */
const parts = process.argv.slice(2);
if (parts.length === 0)
  throw new Error("write: node tools/run-tests.ts contract | integration | more | conformance-part | FILE…");

const stop = new AbortController();
for (const name of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.once(name, () => stop.abort(new Error(name)));

function jobsOfPart(part: string): Job[] {
  const { ONLY: only = "", PROVIDER: provider = "", ALL: all = "" } = process.env;
  if (part === "contract") return contractJobs();
  if (part === "conformance-part") return [conformanceJob()];
  if (part === "integration") return integrationJobs({ only, provider, part: all === "" ? "test" : "all" });
  if (part === "more")
    return [...integrationJobs({ only, provider, part }), ...(only + provider === "" ? tourJobs() : [])];
  return jobsOf([part]);
}

/** The store that clusters begin with costs as much as it spares so many of them. */
const worthAStore = 6;

/** What not every run has a use for, of all that can be prepared. */
function usefulTo(jobs: readonly Job[]): string[] {
  const clusters = parts.includes("integration") || parts.includes("more");
  const store = clusters && jobs.length >= worthAStore;
  const runWith = (holds: (provider: string) => boolean) =>
    jobs.some(({ env }) => holds(env.GRAFTLET_TEST_PROVIDER ?? ""));
  return [
    ...(store ? ["store"] : []),
    ...(runWith((provider) => provider.endsWith("-systemd")) ? ["machines"] : []),
    ...(runWith(isGuest) ? ["guests"] : []),
  ];
}

/** Makes the shared parts of a run once. @returns the environment that leads files to them. */
function prepare(folder: string, useful: readonly string[]): Readonly<Record<string, string>> {
  const program = join(import.meta.dirname, "..", "test", "harness", "prepare.ts");
  const { status } = spawnSync(process.execPath, [program, folder, ...useful], { stdio: "inherit" });
  if (status !== 0) throw new Error("the tests could not be prepared: the reason is above");
  return { GRAFTLET_TEST_PREPARED: join(folder, "prepared.json"), NODE_COMPILE_CACHE: join(folder, "compiled") };
}

/** Tests on a real cluster meet what is nobody's fault, such as a machine that stands still for a second; what fails twice, the
 *  second time with the machine to itself, is a fault. What failed once is named, for it may be one too. */
async function runTwice(jobs: readonly Job[]): Promise<boolean> {
  const options = { limitSeconds, signal: stop.signal };
  const [measuring, others] = [jobs.filter(({ alone }) => alone), jobs.filter(({ alone }) => !alone)];
  const outcomes = await runJobs(others, options);
  const failed = failedOf(tell([...outcomes, ...(await runJobs(measuring, { ...options, alone: true }))]));
  if (failed.length === 0) return true;
  if (failed.length > mostAgainOf(jobs.length) || failed.some(({ job }) => job.once)) {
    tellWhy("failed", failed);
    return false;
  }
  console.log(`==> once more, by themselves: ${namesOf(failed)}`);
  const again = failed.map(({ job }) => job);
  const twice = failedOf(await runJobs(again, { ...options, alone: true })).map(({ job }) => job);
  if (twice.length > 0)
    tellWhy(
      "failed twice",
      failed.filter(({ job }) => twice.includes(job)),
    );
  else tellWhy("failed once and passed the second time, look into it", failed);
  return twice.length === 0;
}

function failedOf(outcomes: readonly Outcome[]): Outcome[] {
  return outcomes.filter(({ passed }) => !passed);
}

function namesOf(outcomes: readonly Outcome[]): string {
  return outcomes.map(({ job }) => job.name).join(", ");
}

/** Names those that failed, with what each test said: the end of a run's output is all that some see of it. */
function tellWhy(verdict: string, failed: readonly Outcome[]): void {
  for (const { job, reasons } of failed) for (const reason of reasons) console.log(`${reason} (${job.name})`);
  console.log(`==> ${verdict}: ${namesOf(failed)}`);
}

/** Prints the slowest files, or with GRAFTLET_TEST_FIGURES=1 all of them in the order of their starts, and the sum of their CPU time. */
function tell(outcomes: readonly Outcome[]): readonly Outcome[] {
  if (process.env.GRAFTLET_TEST_FIGURES) {
    const sum = Math.round(outcomes.reduce((total, { cpuSeconds }) => total + cpuSeconds, 0));
    const lineOf = ({ job, startedAt, seconds, cpuSeconds }: Outcome) =>
      [startedAt, startedAt + seconds, seconds, cpuSeconds].map((figure) => figure.toFixed(1).padStart(7)).join("") +
      `  ${job.name}`;
    const lines = outcomes.toSorted((one, other) => one.startedAt - other.startedAt).map(lineOf);
    console.log([`==> start, end, seconds and CPU seconds of each; ${sum} CPU seconds in all`, ...lines].join("\n"));
    return outcomes;
  }
  const slowest = outcomes.toSorted((one, other) => other.seconds - one.seconds).slice(0, namedSlowest);
  const line = ({ job, seconds, cpuSeconds }: Outcome) =>
    `  ${job.name}: ${Math.round(seconds)} s, ${Math.round(cpuSeconds)} of a processor`;
  if (outcomes.length > 1) console.log(["==> the slowest files", ...slowest.map(line)].join("\n"));
  return outcomes;
}

const folder = mkdtempSync(join(tmpdir(), "graftlet-tests-"));
try {
  const began = performance.now();
  const asked = sharing(parts.flatMap(jobsOfPart));
  if (asked.length === 0) console.log(`==> no ${parts.join(" and ")} tests of that file with that provider`);
  const real =
    asked.length > 0 && parts.some((part) => ["contract", "integration", "more", "conformance-part"].includes(part));
  const common = real ? prepare(folder, usefulTo(asked)) : {};
  const jobs = asked.map((job) => ({ ...job, env: { ...common, ...job.env } }));
  process.exitCode = (await runTwice(jobs)) ? 0 : 1;
  const took = Math.round((performance.now() - began) / 1000);
  console.log(`==> ${jobs.length} files of ${parts.join(" and ")} tests took ${took} s`);
} catch (error) {
  console.error(`run-tests: ${error instanceof Error ? error.message : String(error)}`);
  process.exitCode = 1;
} finally {
  rmSync(folder, { recursive: true, force: true });
}
