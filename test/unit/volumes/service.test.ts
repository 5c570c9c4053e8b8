import assert from "node:assert/strict";
import { test } from "node:test";
import { createLogger } from "../../../src/lib/log.ts";
import { createVolumesService } from "../../../src/volumes/volumes.ts";
import { fakeClock } from "../../fakes/clock.ts";

/** The service over volumes that cannot be read the first `failures` times. */
function rig(failures: number, waitForTarget?: () => Promise<AbortSignal>) {
  const clock = fakeClock();
  const calls: string[] = [];
  const lines: string[] = [];
  const volumes = {
    recover: async () => {
      calls.push(`recover at ${clock.monotonic()}`);
      if (calls.length <= failures) throw new Error("cannot be read");
    },
    stop: () => void calls.push("stop"),
  };
  const log = createLogger(0, { write: (line) => void lines.push(line) });
  const stop = new AbortController();
  const done = createVolumesService({ volumes, waitForTarget, clock, log }).run(stop.signal);
  return { clock, calls, lines, stop, done };
}

test("retries every five seconds until the volumes are reconstructed, and logs one failure", async () => {
  const { clock, calls, lines, stop, done } = rig(2);
  await clock.advance(60_000);
  assert.deepEqual(calls, ["recover at 0", "recover at 5000", "recover at 10000"]);
  assert.equal(lines.filter((line) => line.includes("cannot reconstruct the node's volumes; retrying")).length, 1);
  stop.abort();
  await done;
  assert.equal(calls.at(-1), "stop");
});

test("waits for the target, and stops the volumes at shutdown even if the target was never reachable", async () => {
  const { clock, calls, stop, done } = rig(
    0,
    () => new Promise((_, reject) => stop.signal.addEventListener("abort", reject)),
  );
  await clock.advance(60_000);
  assert.deepEqual(calls, []);
  stop.abort();
  await done;
  assert.deepEqual(calls, ["stop"]);
});

test("does not retry after it has stopped", async () => {
  const { clock, calls, stop, done } = rig(9);
  await clock.advance(1_000);
  stop.abort();
  await done;
  await clock.advance(60_000);
  assert.deepEqual(calls, ["recover at 0", "stop"]);
});
