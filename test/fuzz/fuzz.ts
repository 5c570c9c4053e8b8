import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { Worker } from "node:worker_threads";
import { maxInputBytes } from "./mutations.ts";
import { targets } from "./targets.ts";
import type { WorkerOrder, WorkerReport } from "./worker.ts";

export interface FuzzOptions {
  readonly seed: number;
  /** Seconds for all targets together. */
  readonly seconds: number;
  /** Name of the only target; all of them by default. */
  readonly only?: string;
  /** Directory for inputs that fail. */
  readonly keepIn: string;
}

export interface FuzzReport {
  /** Inputs that were decoded, by target. */
  readonly runs: ReadonlyMap<string, number>;
  /** A text for each target that failed: why, the seed, and where the input is kept. */
  readonly failures: readonly string[];
}

/** Time for one input, milliseconds: a thread that needs longer hangs. */
const hangsAfterMs = 10_000;

/** Gives mutated inputs to the decoders of others' bytes. Each has a thread: one that hangs or runs out of memory is noticed. */
export async function fuzz({ seed, seconds, only, keepIn }: FuzzOptions): Promise<FuzzReport> {
  const chosen = targets.filter(({ name }) => only === undefined || name === only);
  if (chosen.length === 0)
    throw new Error(`there is no target ${only}: use one of ${targets.map(({ name }) => name).join(", ")}`);
  const runs = new Map<string, number>();
  const failures: string[] = [];
  for (const { name } of chosen) {
    const report = await fuzzOne({ target: name, seed, forMs: (seconds * 1000) / chosen.length });
    runs.set(name, report.runs);
    if (!report.failure) continue;
    mkdirSync(keepIn, { recursive: true });
    const file = join(keepIn, `${name.replaceAll(/\W+/g, "-")}-${seed}`);
    writeFileSync(file, report.failure.input);
    failures.push(`${name} (seed ${seed}, input ${file}): ${report.failure.why}`);
  }
  return { runs, failures };
}

async function fuzzOne(order: Pick<WorkerOrder, "target" | "seed" | "forMs">): Promise<WorkerReport> {
  const [current, runs] = [new SharedArrayBuffer(4 + maxInputBytes), new SharedArrayBuffer(4)];
  const counter = new Uint32Array(runs);
  const worker = new Worker(new URL("worker.ts", import.meta.url), {
    workerData: { ...order, current, runs } satisfies WorkerOrder,
    resourceLimits: { maxOldGenerationSizeMb: 512 },
  });
  const failed = (why: string): WorkerReport => {
    const [length = 0] = new Uint32Array(current, 0, 1);
    return { runs: counter[0] ?? 0, failure: { why, input: Buffer.from(new Uint8Array(current, 4, length)) } };
  };
  const { promise, resolve } = Promise.withResolvers<WorkerReport>();
  let seen = 0;
  const watch = setInterval(() => {
    const now = counter[0] ?? 0;
    if (now === seen && now > 0) resolve(failed(`it has been decoding for ${hangsAfterMs} ms`));
    seen = now;
  }, hangsAfterMs);
  worker.on("message", resolve);
  worker.on("error", (error) =>
    resolve(failed(error instanceof Error ? (error.stack ?? error.message) : String(error))),
  );
  worker.on("exit", (code) => resolve(failed(`the thread ended with ${code}`)));
  const report = await promise;
  clearInterval(watch);
  await worker.terminate();
  return report;
}
