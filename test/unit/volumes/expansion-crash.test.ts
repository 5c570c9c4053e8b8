import assert from "node:assert/strict";
import { test } from "node:test";
import { setImmediate as turn } from "node:timers/promises";
import { never } from "../../fakes/signals.ts";
import { type Bench, podWith, rootDir } from "./volume-bench.ts";
import { bound, data, grow, nodeName, started } from "./expansion-bench.ts";

const pod = podWith([data], nodeName);

/** Lets a process make the given number of steps (file changes, halves of driver calls and of claim patches), after which it is
 *  dead and does nothing more.
 *  @returns whether it completed. */
async function broken(bench: Bench, steps: number, work: () => Promise<unknown>): Promise<boolean> {
  let left = steps;
  const step = () => (left-- > 0 ? undefined : new Promise<void>(() => {}));
  const { patch } = bench;
  bench.host.files.onChange(step);
  bench.storage.onStep(step);
  bench.patch = async (...given) => {
    await step();
    const patched = await patch(...given);
    await step();
    return patched;
  };
  const end = { isThere: false };
  void work().then(() => (end.isThere = true));
  for (let turns = 0; turns < 100; turns++) await turn();
  bench.host.files.onChange(undefined);
  bench.storage.onStep(undefined);
  bench.patch = patch;
  return end.isThere && left >= 0;
}

/** Runs the next process: the pod has its volume once, and the claim its new size. */
async function goesOn(bench: Bench, what: string): Promise<void> {
  const next = bench.start();
  await next.recover(never);
  await next.mount(pod, never);
  const { status } = bench.claims.get("data") ?? {};
  assert.deepEqual([status?.capacity, status?.allocatedResourceStatuses], [{ storage: "2Gi" }, {}], what);
  assert.equal(bench.host.files.mounted().length, 2, what);
  await next.unmount("uid-1", never);
  await next.removePodDirectory("uid-1", never);
  assert.deepEqual(bench.host.files.mounted(), [], what);
  assert.deepEqual(bench.host.files.tree(`${rootDir}/pods`), [], what);
  next.stop();
}

test("killed at any step of an online expansion, the next process completes it", async () => {
  for (let steps = 0, whole = false; !whole; steps++) {
    const bench = bound();
    const { stage, pass } = await started(bench);
    grow(bench);
    whole = await broken(bench, steps, pass);
    stage.stop();
    await goesOn(bench, `after ${steps} steps`);
    if (steps === 0) assert.equal(whole, false);
  }
});

test("killed at any step of mounting a volume to be expanded, the next process mounts it with the new size", async () => {
  for (let steps = 0, whole = false; !whole; steps++) {
    const bench = bound();
    grow(bench);
    whole = await broken(bench, steps, () => bench.start().mount(pod, never));
    await goesOn(bench, `after ${steps} steps`);
    if (steps === 0) assert.equal(whole, false);
  }
});
