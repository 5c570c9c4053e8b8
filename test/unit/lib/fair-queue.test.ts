import assert from "node:assert/strict";
import { test } from "node:test";
import { createFairQueue, type FairQueueOptions } from "../../../src/lib/fair-queue.ts";
import { fakeClock } from "../../fakes/clock.ts";

const { signal } = new AbortController();

/** A queue whose tasks end when the test says so. */
function start(options: Partial<FairQueueOptions> = {}) {
  const clock = fakeClock();
  const turns = createFairQueue({
    clock,
    maxConcurrent: 1,
    maxWaiting: { perClient: 3, total: 5 },
    maxWaitMs: 1000,
    nextDelayMs: () => 0,
    ...options,
  });
  const begun: string[] = [];
  const refused: string[] = [];
  const ends: (() => void)[] = [];
  const ask = (name: string, by = signal): void => {
    const work = () => {
      begun.push(name);
      return new Promise<void>((resolve) => ends.push(resolve));
    };
    turns(name.slice(0, 1), work, by).catch((error: { code: string }) => refused.push(`${name} ${error.code}`));
  };
  const endOne = async () => {
    ends.shift()?.();
    await clock.advance(0);
  };
  return { clock, ask, begun, refused, endOne };
}

test("serves clients in turn, regardless of how much one of them requests", async () => {
  const { clock, ask, begun, endOne } = start();
  for (const name of ["a1", "a2", "a3", "a4", "b1", "c1", "b2"]) ask(name);
  await clock.advance(0);
  assert.deepEqual(begun, ["a1"]);
  for (let left = 5; left > 0; left--) await endOne();
  assert.deepEqual(begun, ["a1", "a2", "b1", "c1", "a3", "b2"]);
});

test("rejects work beyond the limit at once, from the client with the longest queue", async () => {
  const { clock, ask, begun, refused, endOne } = start();
  for (const name of ["a0", "a1", "a2", "a3", "a4", "b1", "b2", "c1"]) ask(name);
  await clock.advance(0);
  assert.deepEqual(refused, ["a4 resource_exhausted", "a3 resource_exhausted"]);
  for (let left = 5; left > 0; left--) await endOne();
  assert.deepEqual(begun, ["a0", "a1", "b1", "c1", "a2", "b2"]);
});

test("waiters that time out or abort leave the queue without running", async () => {
  const { clock, ask, begun, refused, endOne } = start();
  const going = new AbortController();
  ask("a1");
  ask("a2", going.signal);
  ask("b1");
  await clock.advance(500);
  ask("c1");
  going.abort();
  await clock.advance(500);
  assert.deepEqual(refused, ["a2 cancelled", "b1 resource_exhausted"]);
  await endOne();
  assert.deepEqual(begun, ["a1", "c1"]);
  await endOne();
  ask("d1");
  await clock.advance(0);
  assert.deepEqual(begun, ["a1", "c1", "d1"]);
});

test("starts work no faster than the rate allows", async () => {
  let due = 0;
  const { clock, ask, begun } = start({ maxConcurrent: 9, nextDelayMs: () => due });
  due = 300;
  ask("a1");
  await clock.advance(299);
  assert.deepEqual(begun, []);
  due = 0;
  await clock.advance(1);
  assert.deepEqual(begun, ["a1"]);
});
