import assert from "node:assert/strict";
import { test } from "node:test";
import type { CallOptions } from "../../../src/api/client.ts";
import { createSliceCleanup } from "../../../src/dra/slice-cleanup.ts";
import { CodedError, type ErrorCode } from "../../../src/lib/errors.ts";
import { silentLog } from "../../../src/lib/log.ts";
import { fakeClock } from "../../fakes/clock.ts";

/** A running cleanup. Its deletions fail with these codes first. */
function running(...failures: ErrorCode[]) {
  const clock = fakeClock();
  const deleted: unknown[] = [];
  const client = {
    async delete(_path: string, _body: object | undefined, { query }: CallOptions) {
      deleted.push(query?.["fieldSelector"]);
      const code = failures.shift();
      if (code) throw new CodedError(code, "failed");
    },
  };
  const cleanup = createSliceCleanup({ client, nodeName: "node", clock, log: silentLog() });
  const stop = new AbortController();
  const ended = cleanup.run(stop.signal);
  return { clock, cleanup, deleted, stop: () => (stop.abort(), ended) };
}

test("deletes the ResourceSlices of all drivers at start, and retries with increasing delays", async () => {
  const { clock, deleted, stop } = running("unavailable", "unavailable");
  await clock.advance(0);
  assert.deepEqual(deleted, ["spec.nodeName=node"]);
  await clock.advance(1_000);
  await clock.advance(2_000);
  assert.equal(deleted.length, 3);
  await clock.advance(600_000);
  assert.equal(deleted.length, 3);
  await stop();
});

for (const code of ["not_found", "permission_denied"] as const)
  test(`does not retry deleting ResourceSlices after ${code}`, async () => {
    const { clock, deleted, stop } = running(code);
    await clock.advance(600_000);
    assert.equal(deleted.length, 1);
    await stop();
  });

test("deletes a driver's ResourceSlices once the driver has been gone for 30 s, but not if it comes back earlier", async () => {
  const { clock, cleanup, deleted, stop } = running();
  await clock.advance(0);
  for (const driver of ["away", "back"]) cleanup.setUsable(driver, false);
  await clock.advance(20_000);
  cleanup.setUsable("away", false);
  cleanup.setUsable("back", true);
  await clock.advance(9_999);
  assert.equal(deleted.length, 1);
  await clock.advance(1);
  assert.deepEqual(deleted.slice(1), ["spec.nodeName=node,spec.driver=away"]);
  cleanup.setUsable("away", false);
  await clock.advance(30_000);
  assert.equal(deleted.length, 3);
  await stop();
});

test("deletes no ResourceSlices after it has stopped", async () => {
  const { clock, cleanup, deleted, stop } = running();
  await clock.advance(0);
  cleanup.setUsable("away", false);
  await stop();
  await clock.advance(60_000);
  assert.equal(deleted.length, 1);
});
