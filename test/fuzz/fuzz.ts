import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { Worker } from "node:worker_threads";
import { maxInputBytes } from "./mutations.ts";
import type { Target } from "./target.ts";
import type { TargetReport, WorkerOrder } from "./worker.ts";

export interface FuzzOptions {
  readonly seed: number;
  /** Seconds for all targets together. */
  readonly seconds: number;
  /** Name of the only target; all of them by default. */
  readonly only?: string;
  /** Directory for inputs that fail. */
  readonly keepIn: string;
  /** File beside this one that exports `targets`. */
  readonly from?: string;
  /** Time for one input, milliseconds: a thread that needs longer hangs. */
  readonly hangsAfterMs?: number;
}

export interface FuzzReport {
  /** Inputs that were decoded, by target. */
  readonly runs: ReadonlyMap<string, number>;
  /** A text for each target that failed: why, the seed, and where the input is kept. */
  readonly failures: readonly string[];
}

/** Gives mutated inputs to decoders of others' bytes, in a thread: one that hangs or runs out of memory is noticed. */
export async function fuzz(options: FuzzOptions): Promise<FuzzReport> {
  const { seed, seconds, only, keepIn, from = "targets.ts", hangsAfterMs = 10_000 } = options;
  const module = new URL(from, import.meta.url).href;
  const { targets } = (await import(module)) as { readonly targets: readonly Target[] };
  const names = targets.map(({ name }) => name).filter((name) => only === undefined || name === only);
  if (names.length === 0) throw new Error(`there is no target ${only}: see test/fuzz/targets.ts`);
  const reports: TargetReport[] = [];
  const order = { module, seed, forMs: (seconds * 1000) / names.length };
  while (reports.length < names.length)
    reports.push(...(await inThread({ ...order, names: names.slice(reports.length) }, hangsAfterMs)));
  const failures = reports.flatMap(({ name, failure }) => {
    if (!failure) return [];
    mkdirSync(keepIn, { recursive: true });
    const file = join(keepIn, `${name.replaceAll(/\W+/g, "-")}-${seed}`);
    writeFileSync(file, failure.input);
    return [`${name} (seed ${seed}, input ${file}): ${failure.why}`];
  });
  return { runs: new Map(reports.map(({ name, runs }) => [name, runs])), failures };
}

/** @returns reports of the first targets: of all, or up to the one that ended the thread. */
async function inThread(
  order: Omit<WorkerOrder, "current" | "runs">,
  hangsAfterMs: number,
): Promise<readonly TargetReport[]> {
  const [current, runs] = [new SharedArrayBuffer(4 + maxInputBytes), new SharedArrayBuffer(4)];
  const counter = new Uint32Array(runs);
  const worker = new Worker(new URL("worker.ts", import.meta.url), {
    workerData: { ...order, current, runs } satisfies WorkerOrder,
    resourceLimits: { maxOldGenerationSizeMb: 512 },
  });
  const reports: TargetReport[] = [];
  const { promise, resolve } = Promise.withResolvers<string | undefined>();
  let seen = 0;
  const watch = setInterval(() => {
    const now = counter[0] ?? 0;
    if (now === seen && now > 0) resolve(`it has been decoding for ${hangsAfterMs} ms`);
    seen = now;
  }, hangsAfterMs);
  worker.on("message", (report: TargetReport) => {
    reports.push(report);
    if (reports.length === order.names.length) resolve(undefined);
  });
  worker.on("error", (error) => resolve(error instanceof Error ? (error.stack ?? error.message) : String(error)));
  worker.on("exit", (code) => resolve(`the thread ended with ${code}`));
  const why = await promise;
  clearInterval(watch);
  const [length = 0] = new Uint32Array(current, 0, 1);
  const input = Buffer.from(new Uint8Array(current, 4, length));
  await worker.terminate();
  const name = order.names[reports.length];
  if (why !== undefined && name !== undefined) reports.push({ name, runs: counter[0] ?? 0, failure: { why, input } });
  return reports;
}
