import assert from "node:assert/strict";
import { test } from "node:test";
import { createReadiness } from "../../../src/node/readiness.ts";
import { fakeClock } from "../../fakes/clock.ts";

test("a process is ready once each of its nodes is served or has reported a failure", () => {
  const readiness = createReadiness(["edge-1", "edge-2"], fakeClock());
  assert.equal(readiness.unready(), "not served yet: edge-1, edge-2");
  readiness.markReady("edge-1");
  assert.equal(readiness.unready(), "not served yet: edge-2");
  readiness.markReady("edge-2");
  assert.equal(readiness.unready(), undefined);
});

test("a node without a result delays readiness only for a while", async () => {
  const clock = fakeClock();
  const readiness = createReadiness(["edge-1", "hangs"], clock);
  readiness.markReady("edge-1");
  await clock.advance(19_000);
  assert.equal(readiness.unready(), "not served yet: hangs");
  await clock.advance(1_000);
  assert.equal(readiness.unready(), undefined);
});
