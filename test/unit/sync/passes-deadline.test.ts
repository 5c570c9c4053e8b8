import assert from "node:assert/strict";
import { test } from "node:test";
import { CodedError } from "../../../src/lib/errors.ts";
import { rfc3339 } from "../../../src/lib/rfc3339.ts";
import type { PodStatus } from "../../../src/objects.ts";
import type { PassDeps } from "../../../src/sync/passes.ts";
import type { PassResult } from "../../../src/sync/pod-worker.ts";
import { aPod } from "../../fakes/pods.ts";
import { never } from "../../fakes/signals.ts";
import { rig as passesRig } from "./passes-rig.ts";

const why = { reason: "DeadlineExceeded", message: "Pod was active on the node longer than the specified deadline" };
const told = `Normal ${why.reason} ${why.message}`;
const over: PassResult = { terminal: true, requeueAfterMs: 0, eviction: why };

/** A pod that has just started. @param mount what its passes wait for. */
function rig(mount: PassDeps["volumes"]["mount"] = async () => new Map()) {
  let kept: PodStatus | undefined;
  const reported: PodStatus[] = [];
  const { clock, events, calls, passes } = passesRig({
    volumes: { mount, unmount: async () => undefined },
    statuses: {
      get: () => kept,
      set: (_pod, status) => void reported.push(status),
      terminated: () => undefined,
      reconcile: () => undefined,
    },
  });
  kept = { startTime: rfc3339(clock.now()) };
  const go = (activeDeadlineSeconds?: number, signal = never, status?: PodStatus) =>
    passes.sync(
      { ...aPod(activeDeadlineSeconds === undefined ? {} : { activeDeadlineSeconds }), ...(status && { status }) },
      signal,
    );
  const failures = () => reported.filter(({ phase }) => phase === "Failed");
  const passed = () => calls.filter((call) => call === "perform").length;
  return { clock, events, calls, go, failures, passed, forget: () => void (kept = undefined) };
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
  const { clock, events, calls, go, failures } = rig();
  await clock.advance(90_000);
  assert.deepEqual(await go(90), over);
  assert.deepEqual([failures(), events.lines, calls], [[{ phase: "Failed", ...why }], [told], []]);
});

test("aborts a pass that exceeds the deadline", async () => {
  const { clock, events, go, failures } = rig(async (_pod, signal) => {
    await clock.sleep(600_000, signal);
    return new Map();
  });
  const going = go(90);
  await clock.advance(90_000);
  assert.deepEqual([await going, failures(), events.lines], [over, [{ phase: "Failed", ...why }], [told]]);
});

test("does not report an exceeded deadline if the pass fails or is aborted", async () => {
  const bad = rig(async () => Promise.reject(new Error("bad")));
  await assert.rejects(bad.go(90), /bad/);
  const stop = new AbortController();
  const cut = rig(async (_pod, signal) => {
    await cut.clock.sleep(600_000, signal);
    return new Map();
  });
  const going = assert.rejects(cut.go(90, stop.signal), { code: "cancelled" });
  await cut.clock.advance(1_000);
  stop.abort(new CodedError("cancelled", "the pod is being terminated"));
  await going;
  assert.deepEqual([bad.failures(), cut.failures(), cut.clock.pending], [[], [], 0]);
});

test("counts the deadline from the start time of the pod, or from now if it has not started", async () => {
  const { clock, go, forget, passed } = rig();
  const status = { startTime: rfc3339(clock.now()) };
  forget();
  await clock.advance(200_000);
  assert.equal((await go(90)).requeueAfterMs, 60_000);
  assert.deepEqual([await go(90, never, status), passed()], [over, 1]);
});
