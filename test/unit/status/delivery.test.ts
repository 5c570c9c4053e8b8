import assert from "node:assert/strict";
import { test } from "node:test";

import { createDelivery } from "../../../src/status/delivery.ts";
import type { PendingStatus } from "../../../src/status/writer.ts";
import { silentLog } from "../../../src/lib/log.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { unmeasured } from "../../fakes/measures.ts";
import { type TestPod, aPod } from "../../fakes/pods.ts";

test("write latency is measured from the first unwritten change", async () => {
  const clock = fakeClock();
  const told: number[] = [];
  const held = new Map<string, PendingStatus>();
  const pod: TestPod = aPod();
  const unasked = () => Promise.reject(new Error("not asked"));
  const delivery = createDelivery({
    api: { get: unasked, remove: unasked, patchStatus: async (_, status) => ({ ...pod, status }) },
    apiPods: { get: () => pod, onChange: () => () => {} },
    worker: { get: () => ({ phase: "finished", pod: undefined }) },
    pendingStatus: (uid) => held.get(uid),
    onGone: () => undefined,
    clock,
    log: silentLog(),
    measures: { ...unmeasured.statuses, written: (_, ms) => void told.push(ms) },
  });
  const stop = new AbortController();
  const running = delivery.run([], stop.signal);
  delivery.send("uid-1");
  await clock.advance(60_000);
  held.set("uid-1", { status: { phase: "Running" }, ended: false, finished: false });
  delivery.send("uid-1", 40);
  await clock.advance(40);
  assert.deepEqual(told, [40]);
  stop.abort();
  await running;
});
