import assert from "node:assert/strict";
import { test } from "node:test";
import { createFairShares } from "../../../src/lib/fair-shares.ts";

/** Acquires slots until the owner is refused. @returns functions that release them. */
function takeAll(shares: ReturnType<typeof createFairShares>, owner: string): readonly (() => void)[] {
  const taken: (() => void)[] = [];
  for (let place = shares.acquire(owner); place; place = shares.acquire(owner)) taken.push(place);
  return taken;
}

test("a single owner gets half of the slots, and the next owner half of the rest", () => {
  const shares = createFairShares(100);
  assert.deepEqual([takeAll(shares, "a").length, takeAll(shares, "b").length], [50, 25]);
  assert.ok(shares.acquire("c"), "a third owner gets a slot");
});

test("releasing a slot twice frees only one slot", () => {
  const shares = createFairShares(4);
  const [first] = takeAll(shares, "a");
  first?.();
  first?.();
  assert.equal(takeAll(shares, "a").length, 1);
});

test("an outer limit applies to all inner ones, and gets its slots back", () => {
  const outer = createFairShares(8);
  const one = createFairShares(100, () => outer.acquire("one"));
  const other = createFairShares(100, () => outer.acquire("other"));
  const taken = takeAll(one, "a");
  assert.deepEqual([taken.length, takeAll(other, "b").length], [4, 2]);
  for (const giveBack of taken) giveBack();
  assert.equal(takeAll(one, "a").length, 3);
});
