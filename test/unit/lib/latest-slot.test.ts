import assert from "node:assert/strict";
import { test } from "node:test";
import { LatestSlot } from "../../../src/lib/latest-slot.ts";

test("runs serially and drops all but the newest value", async () => {
  const gate = Promise.withResolvers<void>();
  const handled: number[] = [];
  let atOnce = 0;
  const box = new LatestSlot<number>(
    async (value) => {
      atOnce += 1;
      assert.equal(atOnce, 1);
      if (value === 1) await gate.promise;
      handled.push(value);
      atOnce -= 1;
    },
    (error) => assert.fail(String(error)),
  );
  for (const value of [1, 2, 3]) box.put(value);
  assert.equal(box.pending, 3);
  gate.resolve();
  await box.idle();
  assert.deepEqual(handled, [1, 3]);
  assert.equal(box.busy, false);
});

test("reports a failure and keeps running", async () => {
  const errors: unknown[] = [];
  const handled: number[] = [];
  const box = new LatestSlot<number>(
    async (value) => {
      if (value === 1) throw new Error("no");
      handled.push(value);
    },
    (error) => errors.push(error),
  );
  box.put(1);
  box.put(2);
  await box.idle();
  assert.equal(errors.length, 1);
  assert.deepEqual(handled, [2]);
});

test("does not lose a value that is put at the very end of the previous run", async () => {
  const handled: number[] = [];
  const box = new LatestSlot<number>(
    async (value) => {
      handled.push(value);
      if (value < 50) queueMicrotask(() => box.put(value + 1));
    },
    (error) => assert.fail(String(error)),
  );
  box.put(0);
  while (handled.length < 51) await new Promise(setImmediate);
  assert.equal(handled.at(-1), 50);
});
