import assert from "node:assert/strict";
import { test } from "node:test";
import { createLiveness } from "../../../src/node/liveness.ts";

test("a process is live while at least one of its nodes makes progress, or if it has no nodes", () => {
  const liveness = createLiveness();
  assert.equal(liveness.trouble(), undefined);
  const second: { trouble?: string } = {};
  const forget = liveness.watch(() => "the first hangs");
  assert.equal(liveness.trouble(), "the first hangs");
  const forgetSecond = liveness.watch(() => second.trouble);
  assert.equal(liveness.trouble(), undefined);
  second.trouble = "the second hangs, too";
  assert.equal(liveness.trouble(), "the first hangs");
  forget();
  assert.equal(liveness.trouble(), "the second hangs, too");
  forgetSecond();
  assert.equal(liveness.trouble(), undefined);
});
