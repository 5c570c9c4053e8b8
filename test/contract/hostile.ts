import assert from "node:assert/strict";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { Worker } from "node:worker_threads";

/** What a hostile peer does to this process: a case of a table. `Bench` is what its suite has made for it. */
export interface HostileCase<Bench> {
  /** What the peer does. */
  readonly name: string;
  /** Begins the attack. @returns once what must be seen of it is seen. @throws AssertionError when it is not. */
  readonly endure: (bench: Bench) => Promise<void>;
}

/** Limits of each case. */
const [mostGrowth, mostBlockedMs, mostNeighbourMs] = [64 * 2 ** 20, 1_000, 1_000];
const [neighbourEveryMs, lookEveryMs] = [100, 20];

/** Measurements during an attack: growth of the resident set without garbage, bytes; the longest time for which the event loop was blocked,
 *  and the neighbour's longest response time, milliseconds, both without the time for which this thread waited for a processor. */
export interface Endured {
  readonly growth: number;
  readonly blockedMs: number;
  readonly neighbourMs: number;
}

/** Measures in a thread of its own, which has nothing else to do, for how long the machine gave it no time: other tests beside this one
 *  make it stand still, too. */
const idleThread = `
const { monitorEventLoopDelay } = require("node:perf_hooks");
const { parentPort } = require("node:worker_threads");
const delay = monitorEventLoopDelay({ resolution: 10 });
delay.enable();
parentPort.postMessage(0);
parentPort.once("message", () => parentPort.postMessage(delay.max / 1e6));
`;

/** Minimum interval between two garbage collections that are forced because the resident set exceeds the limit, milliseconds. */
const collectEveryMs = 250;

/** Endures an attack, and holds the process to the limits meanwhile.
 *  @param neighbour asks something of another target of the same process, which is not attacked. */
export async function endure(attack: () => Promise<void>, neighbour: () => Promise<unknown>): Promise<Endured> {
  await neighbour();
  const idle = new Worker(idleThread, { eval: true });
  await once(idle, "message");
  growYoungGeneration();
  collectGarbage();
  const before = process.memoryUsage.rss();
  let [growth, blocked, slowest, machineMs] = [0, 0, 0, 0];
  let collectedAt = Number.NEGATIVE_INFINITY;
  // On a busy machine V8 collects late: garbage is not what the peer makes the process keep.
  const measure = () => {
    const grown = () => process.memoryUsage.rss() - before;
    if (grown() <= mostGrowth) growth = Math.max(growth, grown());
    else if (performance.now() - collectedAt > collectEveryMs) {
      collectGarbage();
      collectedAt = performance.now();
      growth = Math.max(growth, grown());
    }
  };
  const over = new AbortController();
  let sinceLook = stopwatch();
  const look = setInterval(() => {
    blocked = Math.max(blocked, sinceLook() - lookEveryMs);
    measure();
    sinceLook = stopwatch();
  }, lookEveryMs);
  const asking = (async () => {
    while (!over.signal.aborted) {
      const sinceAsked = stopwatch();
      await neighbour();
      slowest = Math.max(slowest, sinceAsked());
      await sleep(neighbourEveryMs);
    }
  })();
  try {
    await attack();
    // What was queued by the attack's end counts, too.
    await sleep(neighbourEveryMs);
  } finally {
    over.abort();
    clearInterval(look);
    await asking;
    idle.postMessage("report", []);
    [machineMs] = (await once(idle, "message")) as [number];
    await idle.terminate();
  }
  collectedAt = Number.NEGATIVE_INFINITY;
  measure();
  const endured = { growth, blockedMs: blocked - machineMs, neighbourMs: slowest - 2 * machineMs };
  const told = `grew by ${(endured.growth / 2 ** 20).toFixed(1)} MiB, stood still for ${endured.blockedMs.toFixed(0)} ms, the neighbour took ${endured.neighbourMs.toFixed(0)} ms, beside ${machineMs.toFixed(0)} ms for which the machine stood still`;
  if (process.env.GRAFTLET_HOSTILE_REPORT) console.error(told);
  assert.ok(
    endured.growth <= mostGrowth && endured.blockedMs <= mostBlockedMs && endured.neighbourMs <= mostNeighbourMs,
    `this process ${told}`,
  );
  return endured;
}

/** @returns a function that tells the milliseconds since now, without those for which this thread was ready and other processes had the
 *  processors. */
function stopwatch(): () => number {
  const own = () => performance.now() - waitedForProcessorMs();
  const begun = own();
  return () => own() - begun;
}

/** The time for which the process's main thread has been ready and waited for a processor.
 *  @see https://docs.kernel.org/scheduler/sched-stats.html */
function waitedForProcessorMs(): number {
  const [, waitedNs] = readFileSync("/proc/self/schedstat", "utf8").split(" ");
  return Number(waitedNs) / 1e6;
}

/** V8's young generation grows by 50 MiB with the first work of a process, whatever that is. */
function growYoungGeneration(): void {
  let kept: Buffer[] = [];
  for (let n = 0; n < 200_000; n += 1) {
    kept.push(Buffer.from(`${n}`.repeat(20)));
    if (kept.length > 20_000) kept = [];
  }
}

function collectGarbage(): void {
  setFlagsFromString("--expose-gc");
  (runInNewContext("gc") as () => void)();
}
