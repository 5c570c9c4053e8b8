import assert from "node:assert/strict";
import { test } from "node:test";
import { timed } from "../../../src/lib/timed.ts";
import { fakeClock } from "../../fakes/clock.ts";

test("reports the duration and the failure of the work, and returns its result", async () => {
  const clock = fakeClock();
  const told: [number, boolean][] = [];
  const tell = (ms: number, failed: boolean) => told.push([ms, failed]);
  const work = async (ms: number) => {
    await clock.advance(ms);
    return ms;
  };
  const failing = async () => {
    await work(7);
    throw new Error("broken");
  };

  assert.equal(await timed(clock, () => work(5), tell), 5);
  await assert.rejects(timed(clock, failing, tell), /broken/);
  assert.deepEqual(told, [
    [5, false],
    [7, true],
  ]);
});
