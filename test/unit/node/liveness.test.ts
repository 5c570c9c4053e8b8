import assert from "node:assert/strict";
import { test } from "node:test";
import { createLiveness } from "../../../src/node/liveness.ts";

test("a process gets on while one of its nodes does; without a node there is nothing to mend", () => {
  const liveness = createLiveness();
  assert.equal(liveness.trouble(), undefined);
  let second: string | undefined;
  const forget = liveness.watch(() => "the first hangs");
  assert.equal(liveness.trouble(), "the first hangs");
  const forgetSecond = liveness.watch(() => second);
  assert.equal(liveness.trouble(), undefined);
  second = "the second hangs, too";
  assert.equal(liveness.trouble(), "the first hangs");
  forget();
  assert.equal(liveness.trouble(), "the second hangs, too");
  forgetSecond();
  assert.equal(liveness.trouble(), undefined);
});
