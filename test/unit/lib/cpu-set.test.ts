import assert from "node:assert/strict";
import { test } from "node:test";
import { cpusOf } from "../../../src/lib/cpu-set.ts";

test("expands a CPU list into a set", () => {
  assert.deepEqual([...cpusOf("0-3,8,2-4")], [0, 1, 2, 3, 8, 4]);
  assert.deepEqual([...cpusOf("")], []);
});
