import assert from "node:assert/strict";
import { test } from "node:test";
import { memoize } from "../../../src/lib/memoize.ts";

test("computes a result once for each first argument, and again if the second argument changes", () => {
  let computed = 0;
  const sum = memoize((one: { readonly value: number }, other: { readonly value: number } | undefined) => {
    computed += 1;
    return one.value + (other?.value ?? 0);
  });
  const [one, two] = [{ value: 1 }, { value: 2 }];
  assert.deepEqual([sum(one, undefined), sum(one, undefined), computed], [1, 1, 1]);
  assert.deepEqual([sum(one, two), sum(one, two), computed], [3, 3, 2]);
  assert.deepEqual([sum(two, two), computed], [4, 3]);
});
