import assert from "node:assert/strict";
import { test } from "node:test";
import { createShares } from "../../../src/lib/shares.ts";

/** Acquires slots until the owner is refused. @returns functions that release them. */
function takeAll(shares: ReturnType<typeof createShares>, owner: string): readonly (() => void)[] {
  const taken: (() => void)[] = [];
  for (let place = shares.take(owner); place; place = shares.take(owner)) taken.push(place);
  return taken;
}

test("a single owner gets half of the slots, and the next one half of the rest", () => {
  const shares = createShares(100);
  assert.deepEqual([takeAll(shares, "a").length, takeAll(shares, "b").length], [50, 25]);
  assert.ok(shares.take("c"), "a third owner gets a slot");
});

test("releasing a slot twice frees one slot", () => {
  const shares = createShares(4);
  const [first] = takeAll(shares, "a");
  first?.();
  first?.();
  assert.equal(takeAll(shares, "a").length, 1);
});

test("an outer limit applies to all inner ones, and gets its slots back", () => {
  const outer = createShares(8);
  const one = createShares(100, () => outer.take("one"));
  const other = createShares(100, () => outer.take("other"));
  const taken = takeAll(one, "a");
  assert.deepEqual([taken.length, takeAll(other, "b").length], [4, 2]);
  for (const giveBack of taken) giveBack();
  assert.equal(takeAll(one, "a").length, 3);
});
