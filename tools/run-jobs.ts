import { type ChildProcess, spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { pathToFileURL } from "node:url";
import { createGauge, hasRoom, processors } from "./room.ts";
import { reasonMark } from "./spec-of-file.ts";

/** Files of tests, and where they are run. */
export interface Job {
  /** Tells it from all others. */
  readonly name: string;
  /** They run in one process, one after the other. */
  readonly files: readonly string[];
  /** The lab that it shares with other jobs of the same environment. */
  readonly lab?: string;
  readonly env: Readonly<Record<string, string>>;
  /** What fails is not repeated. */
  readonly once?: boolean;
  /** True for a benchmark: nothing else runs beside it. */
  readonly alone?: boolean;
  /** How long it usually takes. */
  readonly seconds: number;
  /** It mostly waits: of such jobs twice as many run side by side. */
  readonly waits: boolean;
  /** Bytes of memory that it takes besides a cluster's. */
  readonly memory?: number;
}

/** How a job went. */
export interface Outcome {
  readonly job: Job;
  readonly passed: boolean;
  readonly seconds: number;
  /** Start of the job, seconds after the start of the first. */
  readonly startedAt: number;
  /** CPU time of the job and of all processes that it started and that ended before it. */
  readonly cpuSeconds: number;
  /** Lines that say why it failed; none of a job that wrote for itself. */
  readonly reasons: readonly string[];
}

/** How jobs are run. */
export interface JobOptions {
  /** A test that takes longer fails, and a file whose tests are over and that does not end is interrupted. */
  readonly limitSeconds: number;
  /** Ends what runs, and throws. */
  readonly signal: AbortSignal;
  /** One after the other. */
  readonly alone?: boolean;
}

/** How often is looked whether another may start, and how long one has to show what it takes, milliseconds. */
const [lookMs, settleMs] = [500, 4_000];

/** A file has so long to end after its last test, and to end when it is interrupted, milliseconds. */
const patienceMs = 60_000;

/** So many lines of a job that says no reason are told. */
const lastWords = 3;

/** Wait for the rest of an ended file's output, milliseconds: processes that it leaves behind may hold it open. */
const outputMs = 5_000;

/** Runs jobs side by side, the longest first, as many as the machine has room for; says of each, when it has ended, what it said. */
export async function runJobs(jobs: readonly Job[], options: JobOptions): Promise<Outcome[]> {
  const waiting = jobs.toSorted((one, other) => other.seconds - one.seconds);
  const always = options.alone ? 1 : processors;
  const outcomes: Outcome[] = [];
  const began = performance.now();
  const running = new Set<Promise<void>>();
  const underWay: Job[] = [];
  const load = (): number => underWay.reduce((sum, { waits }) => sum + (waits ? 0.5 : 1), 0);
  const [spare, cpuSeconds] = [createGauge(), createCpuMeter()];
  const start = (job: Job): void => {
    const run = runJob(job, { ...options, cpuSeconds, firstAt: began, live: jobs.length === 1 });
    const settled = run
      .then((outcome) => void outcomes.push(outcome))
      .finally(() => {
        running.delete(settled);
        underWay.splice(underWay.indexOf(job), 1);
      });
    running.add(settled);
    underWay.push(job);
  };
  let next = 0;
  while (waiting.length > 0) {
    const now = performance.now();
    const due = running.size < always || (!options.alone && now >= next);
    if (due) next = now + settleMs;
    const at = nextOf(waiting, underWay);
    if (due && hasRoom({ running: running.size, load: load() }, spare(), always, waiting[at]?.memory))
      waiting.splice(at, 1).forEach(start);
    else await Promise.race([sleep(lookMs, undefined, { signal: options.signal }), ...running]);
  }
  await Promise.all(running);
  return outcomes;
}

/** Where the longest of those that wait is; one whose file is not under way with another provider, which would want the same at the
 *  same time, where there is such a one. */
function nextOf(waiting: readonly Job[], underWay: readonly Job[]): number {
  const busy = new Set(underWay.flatMap(({ files }) => files));
  const other = waiting.findIndex(({ files }) => !files.some((file) => busy.has(file)));
  return Math.max(other, 0);
}

interface RunOptions extends JobOptions {
  readonly cpuSeconds: () => number;
  /** Start of the first job, milliseconds of the monotonic clock. */
  readonly firstAt: number;
  /** It writes for itself. */
  readonly live: boolean;
}

async function runJob(job: Job, { limitSeconds, signal, cpuSeconds, firstAt, live }: RunOptions): Promise<Outcome> {
  const began = performance.now();
  const reporter = `--test-reporter=${join(import.meta.dirname, "spec-of-file.ts")}`;
  // Inside a test the runner would take itself for a test's.
  const { NODE_TEST_CONTEXT: _, ...env } = process.env;
  const child = spawn(process.execPath, [reporter, `--test-timeout=${limitSeconds * 1000}`, ...program(job)], {
    stdio: ["ignore", live ? "inherit" : "pipe", live ? "inherit" : "pipe"],
    env: { ...env, ...job.env },
    signal,
  });
  const said: string[] = [];
  for (const stream of [child.stdout, child.stderr])
    stream?.setEncoding("utf8").on("data", (text: string) => said.push(text));
  const interrupt = setTimeout(() => child.kill("SIGINT"), limitSeconds * 1000 + patienceMs);
  const kill = setTimeout(() => child.kill("SIGKILL"), limitSeconds * 1000 + 2 * patienceMs);
  const passed = await ended(child)
    .then((code) => code === 0)
    .finally(() => {
      clearTimeout(interrupt);
      clearTimeout(kill);
    });
  const spent = cpuSeconds();
  await outputOf(child);
  const seconds = (performance.now() - began) / 1000;
  const verdict = passed ? "passed" : "failed";
  const took = `${Math.round(seconds)} s, ${Math.round(spent)} of a processor`;
  const all = said.join("");
  process.stdout.write(`==> ${job.name} ${verdict} after ${took}\n${all}`);
  const startedAt = (began - firstAt) / 1000;
  return { job, passed, seconds, startedAt, cpuSeconds: spent, reasons: passed ? [] : reasonsIn(all) };
}

/** Lines that say why a job failed: its tests' own, or else its last words. */
function reasonsIn(said: string): readonly string[] {
  const lines = said.split("\n").filter((line) => line.trim() !== "");
  const told = lines.filter((line) => line.startsWith(reasonMark));
  if (told.length > 0) return told;
  return (lines.length > 0 ? lines.slice(-lastWords) : ["no word"]).map((line) => `${reasonMark}${line.trim()}`);
}

/** Node's arguments for the program that is a job's files. */
function program({ files }: Job): readonly string[] {
  if (files.length === 1) return files;
  return [
    "--input-type=module",
    "--eval",
    files.map((file) => `import ${JSON.stringify(pathToFileURL(file))};`).join(""),
  ];
}

function ended(child: ChildProcess): Promise<number | null> {
  return new Promise((resolve, reject) => {
    child.once("error", reject);
    child.once("exit", resolve);
  });
}

async function outputOf(child: ChildProcess): Promise<void> {
  const open = [child.stdout, child.stderr].filter((stream) => stream !== null && !stream.closed);
  const closed = open.map((stream) => new Promise<void>((resolve) => stream?.once("close", resolve)));
  const late = new AbortController();
  await Promise.race([Promise.all(closed), sleep(outputMs, undefined, { signal: late.signal }).catch(() => {})]);
  late.abort();
  for (const stream of open) stream?.destroy();
}

/** Processor time of the children that ended since it was asked last.
 *  @see https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html (cutime, cstime) */
function createCpuMeter(): () => number {
  const all = (): number => {
    const text = readFileSync("/proc/self/stat", "utf8");
    const fields = text.slice(text.lastIndexOf(")") + 2).split(" ");
    return (Number(fields[13]) + Number(fields[14])) / 100;
  };
  let before = all();
  return () => {
    const now = all();
    const since = now - before;
    before = now;
    return since;
  };
}
