import assert from "node:assert/strict";
import { test } from "node:test";
import type { ContainerStatus, PodCondition, PodStatus } from "../../../src/objects.ts";
import { mergeStatus } from "../../../src/status/writer.ts";
import { normalizeStatus, terminatedStatus } from "../../../src/status/manager.ts";
import { statusPatch } from "../../../src/status/patch.ts";
import { withPreviousTimes, illegalTransition } from "../../../src/status/transition.ts";
import { evictedStatus } from "../../../src/sync/passes.ts";
import { aContainer, aPod } from "../../fakes/pods.ts";

const now = "2026-02-02T00:00:00Z";
const long = "2026-01-01T00:00:00Z";
const aContainerStatus = (name: string, more: Partial<ContainerStatus> = {}): ContainerStatus => ({
  name,
  image: "i",
  imageID: "",
  ready: false,
  restartCount: 0,
  ...more,
});

test("transition times change only when a condition flips; the start time never does", () => {
  const before: PodStatus = {
    startTime: long,
    conditions: [
      { type: "Ready", status: "False", lastTransitionTime: long },
      { type: "Initialized", status: "True", lastTransitionTime: long },
    ],
  };
  const next: PodStatus = {
    conditions: [
      { type: "Ready", status: "True" },
      { type: "Initialized", status: "True" },
      { type: "PodScheduled", status: "True" },
      { type: "my/own", status: "True" },
    ],
  };
  const status = withPreviousTimes(aPod(), before, next, now);
  assert.deepEqual(
    status.conditions?.map(({ lastTransitionTime }) => lastTransitionTime),
    [now, long, now, undefined],
  );
  assert.equal(status.startTime, long);
  assert.equal(withPreviousTimes(aPod(), undefined, next, now).startTime, now);
});

test("a resize condition keeps its lastProbeTime while it is unchanged", () => {
  const pending = { type: "PodResizePending", status: "True", reason: "Deferred", message: "full" };
  const times = (before: PodStatus | undefined, condition: PodCondition) => {
    const [shown] = withPreviousTimes(aPod(), before, { conditions: [condition] }, now).conditions ?? [];
    return [shown?.lastProbeTime, shown?.lastTransitionTime];
  };
  assert.deepEqual(times(undefined, pending), [now, now]);
  const before = { conditions: [{ ...pending, lastProbeTime: long, lastTransitionTime: long }] };
  assert.deepEqual(times(before, pending), [long, long]);
  assert.deepEqual(times(before, { ...pending, message: "fuller" }), [now, long]);
  assert.deepEqual(times(before, { ...pending, reason: "Infeasible" }), [now, now]);
  assert.deepEqual(times(undefined, { type: "Ready", status: "True" }), [undefined, now]);
});

test("the observed generation follows the pod and never decreases", () => {
  const pod = aPod({}, { generation: 4 });
  assert.equal(withPreviousTimes(pod, undefined, {}, now).observedGeneration, 4);
  assert.equal(withPreviousTimes(pod, { observedGeneration: 7 }, {}, now).observedGeneration, 7);
});

test("a pod in a final phase is not ready", () => {
  const ready: PodStatus = {
    phase: "Failed",
    conditions: [
      { type: "Ready", status: "True" },
      { type: "ContainersReady", status: "True" },
      { type: "Initialized", status: "True" },
    ],
  };
  const conditions = withPreviousTimes(aPod(), ready, ready, now).conditions ?? [];
  assert.deepEqual(
    conditions.map(({ status, reason }) => [status, reason]),
    [
      ["False", "PodFailed"],
      ["False", "PodFailed"],
      ["True", undefined],
    ],
  );
  assert.equal(conditions[0]?.lastTransitionTime, now);
});

test("a terminated container is not revived", () => {
  const ended = { containerStatuses: [aContainerStatus("c", { state: { terminated: { exitCode: 0 } } })] };
  const back = { containerStatuses: [aContainerStatus("c", { state: { running: {} } })] };
  const failed = { containerStatuses: [aContainerStatus("c", { state: { terminated: { exitCode: 1 } } })] };
  assert.equal(illegalTransition(aPod({ restartPolicy: "Always" }), ended, back), undefined);
  assert.equal(illegalTransition(aPod({ restartPolicy: "OnFailure" }), ended, back), "c");
  assert.equal(illegalTransition(aPod({ restartPolicy: "OnFailure" }), failed, back), undefined);
  assert.equal(illegalTransition(aPod({ restartPolicy: "Never" }), failed, back), "c");
  const restartPolicyRules = [{ action: "RestartAllContainers", exitCodes: { operator: "In", values: [9] } }];
  const other = aContainer("d", { restartPolicy: "Never", restartPolicyRules });
  assert.equal(
    illegalTransition(aPod({ restartPolicy: "Never", containers: [aContainer("c"), other] }), failed, back),
    undefined,
  );
  const init = aPod({ restartPolicy: "Never", initContainers: [aContainer("i")] });
  const initOf = (state: ContainerStatus["state"]) => ({
    initContainerStatuses: [aContainerStatus("i", state && { state })],
  });
  assert.equal(illegalTransition(init, initOf({ terminated: { exitCode: 1 } }), initOf({ running: {} })), "i");
});

test("termination messages share 12 KiB and are cut between characters; times lose their fractions", () => {
  const pod = aPod({ containers: [aContainer("a"), aContainer("b")] });
  const message = `${"x".repeat(6143)}ü`;
  const status = normalizeStatus(pod, {
    startTime: "2026-01-01T00:00:00.987Z",
    containerStatuses: [
      aContainerStatus("b"),
      aContainerStatus("a", { state: { terminated: { exitCode: 1, message, finishedAt: "2026-01-01T00:00:01.5Z" } } }),
    ],
  });
  assert.deepEqual(
    status.containerStatuses?.map(({ name }) => name),
    ["a", "b"],
  );
  assert.equal(status.containerStatuses?.[0]?.state?.terminated?.message, "x".repeat(6143));
  assert.equal(status.containerStatuses?.[0]?.state?.terminated?.finishedAt, "2026-01-01T00:00:01Z");
  assert.equal(status.startTime, "2026-01-01T00:00:00Z");
});

test("a final phase is held back while containers may run; one already shown is kept", () => {
  const running: PodStatus = {
    phase: "Running",
    conditions: [
      { type: "x/y", status: "True" },
      { type: "Ready", status: "True" },
    ],
  };
  const done: PodStatus = {
    phase: "Failed",
    reason: "R",
    message: "M",
    conditions: [
      { type: "Ready", status: "False" },
      { type: "x/y", status: "False" },
    ],
  };
  const held = mergeStatus(running, done, { mayRun: true, now });
  assert.deepEqual([held.phase, held.reason, held.message], ["Running", undefined, undefined]);
  assert.deepEqual(held.conditions, [
    { type: "x/y", status: "True" },
    { type: "Ready", status: "False" },
  ]);
  assert.deepEqual(
    [
      mergeStatus(running, done, { mayRun: false, now }).phase,
      mergeStatus(running, done, { mayRun: false, now }).reason,
    ],
    ["Failed", "R"],
  );
  assert.equal(mergeStatus({ phase: "Failed" }, { phase: "Running" }, { mayRun: true, now }).phase, "Failed");
});

test("the patch contains changed fields, and nulls for removed ones", () => {
  const shown: PodStatus = {
    phase: "Pending",
    reason: "Waits",
    nominatedNodeName: "other",
    podIPs: [{ ip: "10.0.0.1" }],
    podIP: "10.0.0.1",
    containerStatuses: [aContainerStatus("c", { lastState: {} })],
    conditions: [
      { type: "Ready", status: "False", reason: "X", message: "m", lastTransitionTime: long },
      { type: "Initialized", status: "True", lastTransitionTime: long },
      { type: "PodResizePending", status: "True" },
      { type: "x/y", status: "True" },
    ],
  };
  const wanted: PodStatus = {
    phase: "Running",
    podIP: "10.0.0.2",
    podIPs: [{ ip: "10.0.0.2" }],
    containerStatuses: [aContainerStatus("c")],
    conditions: [
      { type: "Ready", status: "True", lastTransitionTime: now },
      { type: "Initialized", status: "True", lastTransitionTime: long },
    ],
  };
  assert.deepEqual(statusPatch(shown, wanted), {
    phase: "Running",
    reason: null,
    podIP: "10.0.0.2",
    podIPs: [{ $patch: "replace" }, { ip: "10.0.0.2" }],
    conditions: [
      { type: "Ready", status: "True", reason: null, message: null, lastTransitionTime: now },
      { $patch: "delete", type: "PodResizePending" },
    ],
  });
});

test("absent, null and empty are equal", () => {
  const shown = {
    phase: "Running",
    podIPs: [],
    conditions: [{ type: "Ready", status: "True", lastProbeTime: null }],
    containerStatuses: [aContainerStatus("c", { lastState: {} })],
  };
  const wanted: PodStatus = {
    phase: "Running",
    conditions: [{ type: "Ready", status: "True" }],
    containerStatuses: [aContainerStatus("c")],
  };
  assert.equal(statusPatch(shown as unknown as PodStatus, wanted), undefined);
  assert.deepEqual(statusPatch({ podIPs: [{ ip: "1.2.3.4" }] }, {}), { podIPs: null });
  const waits = aContainerStatus("c", { state: { waiting: {} } });
  assert.deepEqual(statusPatch({ containerStatuses: [aContainerStatus("c")] }, { containerStatuses: [waits] }), {
    containerStatuses: [waits],
  });
});

test("statuses are compared independently of field order", () => {
  const container = (state: object, more: object = {}) => ({
    containerStatuses: [aContainerStatus("c", { state, ...more })],
  });
  const patched = (shown: PodStatus, wanted: PodStatus) => statusPatch(shown, wanted) !== undefined;
  const began = { startedAt: now };
  assert.ok(!patched(container({ running: began }), container({ terminated: null, running: { ...began, none: [] } })));
  assert.ok(!patched({ ...container({}), phase: "Running" }, { phase: "Running", ...container({}) }));
  assert.ok(!patched(container({}, { lastState: {} }), container({}, { lastState: null })));
  assert.ok(patched(container({ running: began }), container({ running: { startedAt: long } })));
  assert.ok(patched(container({ running: began }), container({ waiting: began })));
  assert.ok(patched(container({ running: began }), container({ running: began, waiting: {} })));
  assert.ok(patched(container({}, { lastState: {} }), container({}, { lastState: { running: {} } })));
  assert.ok(patched(container({}, { volumeMounts: [{ name: "v" }] }), container({}, { volumeMounts: { 0: "v" } })));
  assert.ok(patched(container({}, { ready: false }), container({}, { ready: 0 })));
});

test("a pod without containers in the runtime is terminated, and its containers are shown as terminated", () => {
  const lost = {
    exitCode: 137,
    reason: "ContainerStatusUnknown",
    message: "The container could not be located when the pod was terminated",
  };
  const status: PodStatus = {
    phase: "Running",
    containerStatuses: [
      aContainerStatus("c", { state: { running: {} } }),
      aContainerStatus("d", { state: { terminated: { exitCode: 0 } } }),
    ],
  };
  const ended = terminatedStatus(aPod(), status);
  assert.equal(ended.phase, "Failed");
  assert.deepEqual(
    ended.containerStatuses?.map(({ state }) => state),
    [{ terminated: lost }, { terminated: { exitCode: 0 } }],
  );
  assert.equal(terminatedStatus(aPod(), { phase: "Succeeded" }).phase, "Succeeded");
});

test("containers that were never meant to start remain waiting", () => {
  const pod = aPod({ initContainers: [aContainer("i"), aContainer("j")] });
  const waiting = { state: { waiting: { reason: "PodInitializing" } } };
  const status: PodStatus = {
    phase: "Pending",
    initContainerStatuses: [aContainerStatus("i", { state: { running: {} } }), aContainerStatus("j", waiting)],
    containerStatuses: [aContainerStatus("c", waiting)],
  };
  const ended = terminatedStatus({ ...pod, status }, status);
  assert.equal(ended.initContainerStatuses?.[0]?.state?.terminated?.exitCode, 137);
  assert.deepEqual(ended.initContainerStatuses?.[1]?.state, waiting.state);
  assert.deepEqual(ended.containerStatuses?.[0]?.state, waiting.state);
  const done = {
    ...status,
    initContainerStatuses: [
      aContainerStatus("i", { state: { terminated: { exitCode: 0 } } }),
      aContainerStatus("j", { state: { terminated: { exitCode: 0 } } }),
    ],
  };
  assert.equal(
    terminatedStatus({ ...pod, status: done }, done).containerStatuses?.[0]?.state?.terminated?.exitCode,
    137,
  );
});

test("new pod-level resources replace those shown; if there are none, those shown stay", () => {
  const shown = { resources: { requests: { cpu: "1" }, limits: { cpu: "1" } }, allocatedResources: { cpu: "1" } };
  assert.equal(statusPatch(shown, shown), undefined);
  assert.equal(statusPatch(shown, {}), undefined);
  assert.deepEqual(statusPatch(shown, { resources: { requests: { cpu: "2" } }, allocatedResources: { cpu: "2" } }), {
    resources: { $patch: "replace", requests: { cpu: "2" } },
    allocatedResources: { $patch: "replace", cpu: "2" },
  });
});

test("pod-level resources are added if none are shown, as the API server drops a replacement of a missing field", () => {
  const amounts = { resources: { requests: { cpu: "1" } }, allocatedResources: { cpu: "1" } };
  assert.deepEqual(statusPatch({}, amounts), amounts);
});

test("the disruption condition is reported together with the pod's end and replaces one set by another component", () => {
  const theirs = { type: "DisruptionTarget", status: "True", reason: "DeletionByTaintManager" };
  const shown: PodStatus = { phase: "Running", conditions: [theirs, { type: "my/own", status: "True" }] };
  const pod = aPod({}, { generation: 2 });
  const seen: PodStatus = { ...shown, containerStatuses: [] };
  const why = { reason: "Preempting", message: "make room", disruption: "Pod was preempted." };
  const own = withPreviousTimes(pod, undefined, evictedStatus(pod, seen, why), now);
  const end = "2026-02-02T00:00:30Z";
  assert.deepEqual(statusPatch(shown, mergeStatus(shown, own, { mayRun: true, now })), {
    observedGeneration: 2,
    startTime: now,
  });
  const ours = {
    type: "DisruptionTarget",
    status: "True",
    reason: "TerminationByKubelet",
    message: "Pod was preempted.",
    observedGeneration: 2,
    lastTransitionTime: end,
  };
  const ended = mergeStatus(shown, own, { mayRun: false, now: end });
  assert.deepEqual([ended.reason, ended.conditions], ["Preempting", [{ type: "my/own", status: "True" }, ours]]);
  assert.deepEqual(statusPatch(shown, ended)?.["conditions"], [ours]);
  const later = withPreviousTimes(pod, own, evictedStatus(pod, ended, why), "2026-03-03T00:00:00Z");
  assert.equal(
    statusPatch(ended, mergeStatus(ended, later, { mayRun: false, now: "2026-03-03T00:00:00Z" })),
    undefined,
  );
  const before: PodStatus = { conditions: [{ ...theirs, lastTransitionTime: long }] };
  const since = mergeStatus(before, own, { mayRun: false, now: end }).conditions?.[0]?.lastTransitionTime;
  assert.equal(since, long, "DisruptionTarget was set by others before");
  const { disruption: _none, ...plain } = why;
  assert.deepEqual(evictedStatus(pod, seen, plain).conditions, shown.conditions);
});
