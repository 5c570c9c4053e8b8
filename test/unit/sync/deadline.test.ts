import assert from "node:assert/strict";
import { test } from "node:test";
import { CodedError, throwIfAborted } from "../../../src/lib/errors.ts";
import { rfc3339 } from "../../../src/lib/rfc3339.ts";
import type { PodStatus } from "../../../src/objects.ts";
import type { Rejection } from "../../../src/pipeline.ts";
import { withinDeadline } from "../../../src/sync/deadline.ts";
import type { PassResult } from "../../../src/sync/pod-worker.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { eventLines } from "../../fakes/events.ts";
import { aPod } from "../../fakes/pods.ts";

const never = new AbortController().signal;
const why = { reason: "DeadlineExceeded", message: "Pod was active on the node longer than the specified deadline" };
const told = `Normal ${why.reason} ${why.message}`;
const over: PassResult = { terminal: true, requeueAfterMs: 0, eviction: why };

function rig(make?: (signal: AbortSignal) => Promise<PassResult>) {
  const clock = fakeClock();
  const events = eventLines();
  const failed: Rejection[] = [];
  let held: PodStatus | undefined = { startTime: rfc3339(clock.now()) };
  let passes = 0;
  const go = (activeDeadlineSeconds?: number, signal = never, status?: PodStatus) =>
    withinDeadline(
      { clock, events, status: { get: () => held } },
      { ...aPod(activeDeadlineSeconds === undefined ? {} : { activeDeadlineSeconds }), ...(status && { status }) },
      {
        run: async (given) => {
          passes++;
          return make ? make(given) : { terminal: false, requeueAfterMs: 60_000 };
        },
        fail: (reason) => void failed.push(reason),
      },
      signal,
    );
  return { clock, events, failed, go, passes: () => passes, forget: () => void (held = undefined) };
}

test("schedules the next pass no later than the pod's active deadline", async () => {
  const { clock, go } = rig();
  assert.equal((await go()).requeueAfterMs, 60_000);
  assert.equal((await go(90)).requeueAfterMs, 60_000);
  await clock.advance(50_000);
  assert.equal((await go(90)).requeueAfterMs, 40_000);
  assert.equal(clock.pending, 0);
});

test("fails a pod past its deadline without another pass, and emits the event", async () => {
  const { clock, events, failed, go, passes } = rig();
  await clock.advance(90_000);
  assert.deepEqual(await go(90), over);
  assert.deepEqual([failed, events.lines, passes()], [[why], [told], 0]);
});

test("aborts a pass that exceeds the deadline", async () => {
  const { clock, failed, go } = rig(async (signal) => {
    await clock.sleep(600_000, signal);
    return { terminal: false, requeueAfterMs: 0 };
  });
  const going = go(90);
  await clock.advance(90_000);
  assert.deepEqual([await going, failed], [over, [why]]);
});

test("does not report an exceeded deadline if the pass fails or is aborted", async () => {
  const bad = rig(async () => Promise.reject(new Error("bad")));
  await assert.rejects(bad.go(90), /bad/);
  const stop = new AbortController();
  const cut = rig(async (signal) => {
    stop.abort(new CodedError("cancelled", "the pod is being terminated"));
    throwIfAborted(signal);
    return { terminal: false, requeueAfterMs: 0 };
  });
  await assert.rejects(cut.go(90, stop.signal), { code: "cancelled" });
  assert.deepEqual([bad.failed, cut.failed], [[], []]);
});

test("counts the deadline from the start time of the pod, or from now if it has not started", async () => {
  const { clock, go, forget, passes } = rig();
  const status = { startTime: rfc3339(clock.now()) };
  forget();
  await clock.advance(200_000);
  assert.equal((await go(90)).requeueAfterMs, 60_000);
  assert.deepEqual([await go(90, never, status), passes()], [over, 1]);
});
