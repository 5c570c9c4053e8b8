import { parentPort, workerData } from "node:worker_threads";
import fc from "fast-check";
import { mutated } from "./mutations.ts";
import type { Target } from "./target.ts";

/** What the thread is told. */
export interface WorkerOrder {
  /** URL of the module that exports `targets`. */
  readonly module: string;
  /** Names of the targets, in order. */
  readonly names: readonly string[];
  readonly seed: number;
  /** Time for each target, milliseconds. */
  readonly forMs: number;
  /** The input that is being decoded: its length, then its bytes; and how many there were. */
  readonly current: SharedArrayBuffer;
  readonly runs: SharedArrayBuffer;
}

/** How a target went. */
export interface TargetReport {
  readonly name: string;
  readonly runs: number;
  /** Why an input failed, and the smallest one that does. */
  readonly failure?: { readonly why: string; readonly input: Uint8Array };
}

/** Limits of one input of at most 64 KiB: time of the processor, so that a busy machine makes no failures, and memory. */
const maxMs = 2_000;
const maxMemoryBytes = 64 * 1024 * 1024;
/** Shorter decoding takes no memory worth a look. */
const lookAfterMs = 5;

const { module, names, seed, forMs, current, runs } = workerData as WorkerOrder;
const length = new Uint32Array(current, 0, 1);
const bytes = new Uint8Array(current, 4);
const counter = new Uint32Array(runs);

/** Time that this thread has had of a processor, milliseconds. */
function processorMs(): number {
  const { user, system } = process.threadCpuUsage();
  return (user + system) / 1_000;
}

function memory(): number {
  const { heapUsed, arrayBuffers } = process.memoryUsage();
  return heapUsed + arrayBuffers;
}

/** Decodes an input. @throws for a decoder that takes too long, takes too much memory, or fails other than by an error of its own. */
async function endure(decode: Target["decode"], input: Buffer): Promise<void> {
  length[0] = input.length;
  bytes.set(input);
  counter[0] = (counter[0] ?? 0) + 1;
  const before = memory();
  const began = processorMs();
  try {
    await decode(input);
  } catch (error) {
    if (!(error instanceof Error)) throw new Error(`it threw ${String(error)}`, { cause: error });
    // Of a value that is not what its type says, or of a call without end.
    if (error instanceof TypeError || error.message.includes("call stack")) throw error;
  }
  const ms = processorMs() - began;
  if (ms > maxMs) throw new Error(`it took ${Math.round(ms)} ms`);
  if (ms > lookAfterMs && memory() - before > maxMemoryBytes)
    throw new Error(`it took ${Math.round((memory() - before) / 2 ** 20)} MiB`);
}

async function fuzzTarget({ name, samples, decode }: Target): Promise<TargetReport> {
  const before = counter[0] ?? 0;
  const { failed, counterexample, errorInstance } = await fc.check(
    fc.asyncProperty(mutated(samples), (input) => endure(decode, input)),
    { seed, numRuns: 1_000_000_000, interruptAfterTimeLimit: forMs, markInterruptAsFailure: false },
  );
  const [input] = counterexample ?? [];
  const why = errorInstance instanceof Error ? (errorInstance.stack ?? errorInstance.message) : String(errorInstance);
  return { name, runs: (counter[0] ?? 0) - before, ...(failed && input && { failure: { why, input } }) };
}

const { targets } = (await import(module)) as { readonly targets: readonly Target[] };
for (const name of names) {
  const target = targets.find((one) => one.name === name);
  // oxlint-disable-next-line unicorn/require-post-message-target-origin -- a thread, not a window
  if (target) parentPort?.postMessage(await fuzzTarget(target));
}
