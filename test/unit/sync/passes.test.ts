import assert from "node:assert/strict";
import { test } from "node:test";
import type { SyncOutcome } from "../../../src/sync/ports.ts";
import { ContainerState } from "../../../src/gen/cri.ts";
import { CodedError, type ErrorCode } from "../../../src/lib/errors.ts";
import { untilAborted } from "../../../src/lib/runnables.ts";
import type { PodStatus } from "../../../src/objects.ts";
import type { RuntimePod } from "../../../src/pipeline.ts";
import { PodRejectedError } from "../../../src/pod/rejected.ts";
import { type TestPod, aPod, aSandbox, aStatus, observe } from "../../fakes/pods.ts";
import { noResizes } from "../../fakes/resizes.ts";
import { never } from "../../fakes/signals.ts";
import { aColumn } from "../../fakes/state.ts";
import { c, rig } from "./passes-rig.ts";

test("runs the steps of a sync pass in order, then inspects the pod and reports its status", async () => {
  const { calls, passes } = rig();
  assert.deepEqual(await passes.sync(aPod(), never), { terminal: false, requeueAfterMs: 60_000 });
  assert.deepEqual(calls, [
    "status Running",
    "register uid-1",
    "prepare uid-1",
    "mount uid-1",
    "plan",
    "probe uid-1",
    "perform",
    "inspect",
    "status Running",
  ]);
});

test("reports a new sandbox before the pass continues; inspects the pod if it has more than the sandbox", async () => {
  const { calls, world, passes } = rig();
  world.sandbox = "new";
  await passes.sync(aPod(), never);
  const after = ["inspect", "status Running"];
  assert.deepEqual(calls.slice(calls.indexOf("learn")), ["learn", "status Running", "perform", ...after]);
  world.sandbox = "another";
  calls.length = 0;
  await passes.sync(aPod(), never);
  assert.deepEqual(calls.slice(calls.indexOf("inspect")), [...after, "perform", ...after]);
});

test("fails a pod that is rejected during a pass, and counts the rejection", async () => {
  const rejection = { reason: "VolumeAttachmentLimitExceeded", message: "no room" };
  const volumes = {
    mount: () => Promise.reject(new PodRejectedError(rejection)),
    unmount: async () => undefined,
  };
  const { calls, events, passes } = rig({ volumes });
  const eviction = { ...rejection, message: "Pod was rejected: no room" };
  assert.deepEqual(await passes.sync(aPod(), never), { terminal: true, requeueAfterMs: 0, eviction });
  assert.deepEqual(calls.slice(-2), ["rejected VolumeAttachmentLimitExceeded", "status Failed"]);
  assert.deepEqual(events.lines, ["Warning VolumeAttachmentLimitExceeded no room"]);
});

test("does not inspect the pod after a pass that changed nothing", async () => {
  const { calls, world, passes } = rig();
  world.outcome = { untouched: true };
  assert.deepEqual(await passes.sync(aPod(), never), { terminal: false, requeueAfterMs: 60_000 });
  assert.deepEqual(calls.slice(-2), ["probe uid-1", "perform"]);
  calls.length = 0;
  await passes.sync(aPod(), never);
  assert.equal(calls.includes("inspect"), false);
});

test("does nothing for a pod in a terminal phase", async () => {
  for (const phase of ["Failed", "Succeeded"]) {
    const { calls, world, passes } = rig();
    world.phase = phase;
    assert.deepEqual(await passes.sync(aPod(), never), { terminal: true, requeueAfterMs: 0 });
    assert.deepEqual(calls, [`status ${phase}`]);
  }
});

test("holds a pod with an unsupported field: emits an event that names the field, creates nothing", async () => {
  const { calls, events, passes } = rig({
    fieldChecker: {
      unsupportedFields: async () => [{ field: "spec.containers[0].lifecycle.preStop", why: "hooks are not served" }],
    },
  });
  assert.deepEqual(await passes.sync(aPod(), never), { terminal: false, requeueAfterMs: 60_000 });
  assert.deepEqual(calls, ["status Running"]);
  assert.deepEqual(events.lines, [
    "Warning UnsupportedField pod is held: this node does not support spec.containers[0].lifecycle.preStop (hooks are not served)",
  ]);
});

test("creates nothing for a placeholder; emits one event, not repeated after a restart", async () => {
  const daemonSetDecision = () => ({ kind: "placeholder", isFinal: true }) as const;
  const { calls, events, passes } = rig({ daemonSetDecision });
  assert.deepEqual(await passes.sync(aPod(), never), { terminal: false, requeueAfterMs: 60_000 });
  assert.deepEqual(calls, ["status Running"]);
  assert.match(events.lines.join(), /^Normal NotRunByGraftlet this pod does not run: [^]*$/);
  const after = rig({ daemonSetDecision });
  const shown = { ...aPod(), status: { phase: "Running", reason: "NotRunByGraftlet" } };
  await after.passes.sync(shown, never);
  assert.deepEqual(after.events.lines, []);
});

test("deletes a pod whose placeholder decision has changed, and retries until the deletion is observed", async () => {
  for (const kind of ["pod", "placeholder"] as const) {
    const { calls, events, passes } = rig({ daemonSetDecision: () => ({ kind, isFinal: false }) });
    assert.deepEqual(await passes.sync(aPod(), never), { terminal: false, requeueAfterMs: 10_000 });
    assert.deepEqual(calls, ["status Running", "delete uid-1"]);
    assert.match(events.lines.join(), /^Normal DaemonSetsChanged /);
  }
});

test("creates nothing before field support is known; an aborted pass does not wait for it", async () => {
  const found = Promise.withResolvers<readonly { field: string; why: string }[]>();
  const waiting = rig({ fieldChecker: { unsupportedFields: () => found.promise } });
  const pass = waiting.passes.sync(aPod(), never);
  await new Promise(setImmediate);
  assert.deepEqual(waiting.calls, ["status Running"]);
  found.resolve([{ field: "spec.containers[0].securityContext.privileged", why: "it cannot" }]);
  assert.deepEqual(await pass, { terminal: false, requeueAfterMs: 60_000 });
  assert.deepEqual([waiting.calls, waiting.events.lines.length], [["status Running"], 1]);
  const stop = new AbortController();
  const ending = rig({
    fieldChecker: { unsupportedFields: (_pod, signal) => untilAborted(new Promise<never>(() => {}), signal) },
  });
  const cut = assert.rejects(ending.passes.sync(aPod(), stop.signal), { code: "cancelled" });
  stop.abort();
  await cut;
  assert.deepEqual(ending.calls, ["status Running"]);
});

test("reports volumes that cannot be unmounted by an event, unless the target is unreachable, and retries", async () => {
  const failing = (code: ErrorCode) => async () => Promise.reject(new CodedError(code, "/v/f: not permitted"));
  const terminated = async (code: ErrorCode) => {
    const volumes = { mount: async () => new Map<string, never>(), unmount: failing(code) };
    const { passes, events, calls } = rig({ volumes });
    await assert.rejects(passes.terminated(aPod().metadata.uid, aPod(), never), { code });
    assert.ok(!calls.some((call) => call.startsWith("terminated")));
    return events.lines;
  };
  assert.deepEqual(await terminated("permission_denied"), [
    "Warning FailedUnmount cannot unmount the pod's volumes; retrying: /v/f: not permitted",
  ]);
  assert.deepEqual(await terminated("unavailable"), []);
});

test("retries a pod after a second while the network is not ready, unless it uses hostNetwork", async () => {
  const networkError = () => "container runtime network not ready: NetworkReady=false reason:X message:Y";
  const waiting = rig({ networkError });
  assert.deepEqual(await waiting.passes.sync(aPod(), never), { terminal: false, requeueAfterMs: 1_000 });
  assert.deepEqual(
    [waiting.calls, waiting.events.lines],
    [["status Running"], [`Warning NetworkNotReady network is not ready: ${networkError()}`]],
  );
  const host = rig({ networkError });
  await host.passes.sync(aPod({ hostNetwork: true }), never);
  assert.ok(host.calls.includes("perform"));
});

const outcomes: readonly (readonly [string, SyncOutcome, number])[] = [
  ["after the sync period if the pass succeeds", {}, 60_000],
  ["after ten seconds if the pass fails", { error: new Error("x") }, 10_000],
  [
    "after a second, like a relist, if the pass fails after creating something",
    { error: new Error("x"), made: { sandboxes: ["made"], containers: [] } },
    1_000,
  ],
  [
    "at the end of the back-off if only a crash loop delays the pod",
    { error: new Error("x"), retryAt: Date.UTC(2026, 0, 1) + 20_000 },
    20_000,
  ],
  [
    "after a minute if the back-off is longer",
    { error: new Error("x"), retryAt: Date.UTC(2026, 0, 1) + 300_000 },
    60_000,
  ],
  ["at once if the back-off has ended", { error: new Error("x"), retryAt: Date.UTC(2026, 0, 1) - 1 }, 0],
];
for (const [what, outcome, requeueAfterMs] of outcomes) {
  test(`schedules the next pass ${what}`, async () => {
    const { world, passes } = rig();
    world.outcome = outcome;
    assert.equal((await passes.sync(aPod(), never)).requeueAfterMs, requeueAfterMs);
  });
}

test("runs another pass at once if a container ended during the pass: its event may have been consumed", async () => {
  const running = aStatus(c, ContainerState.CONTAINER_RUNNING);
  const views: RuntimePod[] = [
    observe([aSandbox()], [running]),
    observe([aSandbox()], [{ ...running, state: ContainerState.CONTAINER_EXITED }]),
  ];
  const { passes } = rig({
    podCache: { get: () => views[0], list: () => [] },
    privateColumn: aColumn,
    inspector: {
      inspect: async () => views[1] ?? assert.fail(),
      needsInspection: () => false,
      recordObservation: () => undefined,
    },
  });
  assert.equal((await passes.sync(aPod(), never)).requeueAfterMs, 0);
});

test("inspects the pod before using the cache if the previous pass was aborted after changes", async () => {
  const { calls, passes } = rig({
    podRuntime: {
      plan: async () => ({ perform: () => Promise.reject(new Error("cut off")) }),
      kill: async () => undefined,
    },
  });
  await assert.rejects(passes.sync(aPod(), never), /cut off/);
  calls.length = 0;
  await assert.rejects(passes.sync(aPod(), never), /cut off/);
  assert.equal(calls[0], "inspect");
});

const inFiveSeconds = { graceSeconds: 5, eviction: undefined };

test("reports an evicted pod as Failed with the reason, regardless of its containers", async () => {
  const statuses: PodStatus[] = [];
  const status = { get: () => undefined, set: (_pod: TestPod, now: PodStatus) => void statuses.push(now) };
  const { passes } = rig({
    statuses: { ...status, terminated: () => undefined, reconcile: () => undefined },
    statusOf: () => ({ phase: "Succeeded", qosClass: "BestEffort" }),
  });
  const eviction = { reason: "Evicted", message: "too much. " };
  await passes.terminating("uid-1", aPod(), { graceSeconds: 1, eviction }, never);
  const failed = { phase: "Failed", qosClass: "BestEffort", ...eviction };
  assert.deepEqual(statuses, [failed, failed]);
});

test("terminating inspects the pod, kills it within the grace period, stops probes, inspects again and reports", async () => {
  const { calls, passes } = rig();
  await passes.terminating("uid-1", aPod(), inFiveSeconds, never);
  assert.deepEqual(calls, [
    "spare uid-1",
    "inspect",
    "status Running",
    "kill uid-1 5",
    "stop probing uid-1",
    "inspect",
    "status Failed",
  ]);
});

test("emits an event if the pod's status cannot be determined, unless the runtime does not respond", async () => {
  const ending = async (code: ErrorCode, pod: ReturnType<typeof aPod> | undefined) => {
    const inspect = async () => Promise.reject(new CodedError(code, "sandbox s: broken"));
    const { passes, events } = rig({
      inspector: { inspect, needsInspection: () => true, recordObservation: () => undefined },
    });
    await assert.rejects(passes.terminating("uid-1", pod, inFiveSeconds, never), { code });
    return events.lines;
  };
  assert.deepEqual(await ending("unknown", aPod()), ["Warning FailedSync error determining status: sandbox s: broken"]);
  for (const code of ["unavailable", "deadline_exceeded"] as const)
    assert.deepEqual(await ending(code, aPod()), [], code);
  assert.deepEqual(await ending("unknown", undefined), []);
});

test("kills a pod that only the runtime knows with a grace period of one second, without a status", async () => {
  const { calls, passes } = rig();
  await passes.terminating("uid-1", undefined, { graceSeconds: undefined, eviction: undefined }, never);
  assert.deepEqual(calls, ["spare uid-1", "inspect", "kill undefined 1", "stop probing uid-1", "inspect"]);
});

test("fails termination while a container is still running", async () => {
  for (const seen of [observe([], [aStatus(c, ContainerState.CONTAINER_RUNNING)]), observe([aSandbox()], [])]) {
    const { world, passes } = rig();
    world.seen = seen;
    await assert.rejects(passes.terminating("uid-1", aPod(), inFiveSeconds, never), /still run/);
  }
});

test("releases a terminated pod's volumes, objects, directories and cgroup before its object may be deleted", async () => {
  const { calls, passes } = rig();
  await passes.terminated("uid-1", aPod(), never);
  assert.deepEqual(calls, [
    "reconcile uid-1",
    "free resources uid-1",
    "unmount uid-1",
    "unregister uid-1",
    "release uid-1",
    "terminated uid-1",
  ]);
  const failing = rig({
    volumes: {
      mount: async () => new Map(),
      unmount: async () => Promise.reject(new Error("busy")),
    },
  });
  await assert.rejects(failing.passes.terminated("uid-1", aPod(), never), /busy/);
  assert.ok(!failing.calls.includes("terminated uid-1"));
});

test("inspects an uncached pod whose inspection failed before assuming that the runtime does not have it", async () => {
  const { calls, world, passes } = rig();
  world.unseen = true;
  await passes.sync(aPod(), never);
  assert.deepEqual(calls.slice(0, 2), ["inspect", "status Running"]);
});

test("reports a pod past its deadline as Failed, with the reason, without running the pass", async () => {
  const { clock, calls, passes } = rig();
  const pod = { ...aPod({ activeDeadlineSeconds: 5 }), status: { startTime: new Date(clock.now()).toISOString() } };
  await clock.advance(5_000);
  const { terminal, eviction } = await passes.sync(pod, never);
  assert.deepEqual([terminal, eviction?.reason, calls], [true, "DeadlineExceeded", ["status Failed"]]);
});

test("uses allocated resources in a pass, and actuated resources for a new cgroup", async () => {
  const given = aPod({}, { uid: "given" });
  const inForce = aPod({}, { uid: "in-force" });
  const seen: string[] = [];
  const { calls, passes } = rig({
    resizes: {
      ...noResizes,
      allocatedPod: () => given,
      actuatedPod: () => inForce,
      checkProgress: ({ metadata }) => void seen.push(`observe ${metadata.uid}`),
    },
  });
  await passes.sync(aPod(), never);
  assert.deepEqual([calls.includes("prepare in-force"), calls.includes("mount given")], [true, true]);
  assert.deepEqual(seen, ["observe given", "observe given"]);
});

test("reports a failed actuation before the status, and retries soon", async () => {
  const told: string[] = [];
  const { calls, world, passes } = rig({
    resizes: { ...noResizes, actuationFailed: (_pod, message) => void told.push(`${message} after ${calls.at(-1)}`) },
  });
  world.outcome = { error: new Error("no"), resizeError: "no" };
  assert.deepEqual(await passes.sync(aPod(), never), {
    terminal: false,
    requeueAfterMs: 10_000,
    error: new Error("no"),
  });
  assert.deepEqual([told, calls.at(-1)], [["no after inspect"], "status Running"]);
});
