import assert from "node:assert/strict";
import { test } from "node:test";
import { ContainerState, Mount, Signal } from "../../../src/gen/cri.ts";
import type { Container, ContainerStatus, Pod, PodStatus } from "../../../src/objects.ts";
import type { ProbeVerdict, RuntimePod, StartFailure } from "../../../src/pipeline.ts";
import { type ContainerStatusInput, containerStatuses } from "../../../src/status/generate/container-status.ts";
import type { ResizableAmounts } from "../../../src/pod/pod-resources.ts";
import { aContainer, aPod, aSandbox, aStatus, observe } from "../../fakes/pods.ts";

const second = 1_000_000_000n;
const restarts = (count: number) => ({ "io.kubernetes.container.restartCount": String(count) });

interface Given {
  readonly pod?: Pod;
  readonly observed?: RuntimePod;
  readonly previous?: PodStatus;
  readonly failures?: Record<string, StartFailure>;
  readonly verdict?: ProbeVerdict;
  readonly inForce?: ResizableAmounts;
  readonly stopSignals?: boolean;
  readonly imageVolumeDigests?: boolean;
  readonly resourceHealth?: ContainerStatusInput["resourceHealth"];
}

function statuses(kind: "containers" | "initContainers" | "ephemeralContainers", given: Given): ContainerStatus[] {
  const { pod = aPod(), observed, previous, failures = {}, verdict, inForce, resourceHealth } = given;
  return containerStatuses(kind, {
    pod,
    observed,
    previous,
    failures: new Map(Object.entries(failures)),
    readiness: () => verdict,
    started: () => undefined,
    actualResources: () => inForce,
    ...(resourceHealth && { resourceHealth }),
    stopSignals: given.stopSignals ?? false,
    imageVolumeDigests: given.imageVolumeDigests ?? false,
    runtimeName: "containerd",
  });
}

function only(given: Given): ContainerStatus {
  const [status, ...more] = statuses("containers", given);
  assert.ok(status);
  assert.equal(more.length, 0);
  return status;
}

const before = (more: Partial<ContainerStatus>): PodStatus => ({
  containerStatuses: [{ name: "c", image: "busybox", imageID: "", ready: false, restartCount: 0, ...more }],
});
const c = aContainer("c");
const running = (id: string, more: object = {}) =>
  aStatus(c, ContainerState.CONTAINER_RUNNING, { id, startedAt: 5n * second, ...more });
const exited = (id: string, exitCode: number, more: object = {}) =>
  aStatus(c, ContainerState.CONTAINER_EXITED, {
    id,
    exitCode,
    startedAt: 5n * second,
    finishedAt: 9n * second,
    reason: exitCode ? "Error" : "Completed",
    ...more,
  });

test("a container that is not created yet is waiting", () => {
  assert.deepEqual(only({}), {
    name: "c",
    image: "busybox",
    imageID: "",
    ready: false,
    started: false,
    restartCount: 0,
    state: { waiting: { reason: "ContainerCreating" } },
    lastState: {},
  });
  assert.deepEqual(only({ pod: aPod({ initContainers: [aContainer("i")] }) }).state, {
    waiting: { reason: "PodInitializing" },
  });
});

test("a running container has image, ID, start time, user, resources and mounts", () => {
  const container = aContainer("c", {
    resources: { requests: { cpu: "100m", memory: "64Mi" }, limits: { cpu: "0.5", memory: "64Mi" } },
    volumeMounts: [
      { name: "v", mountPath: "/v" },
      { name: "w", mountPath: "/w", readOnly: true },
    ],
  });
  const run = running("id", {
    annotations: restarts(2),
    image: { image: "docker.io/library/busybox:1" },
    imageRef: "docker.io/library/busybox@sha256:1",
    user: { linux: { uid: 1n, gid: 2n, supplementalGroups: [3n] } },
    resources: { linux: { cpuShares: 102n, cpuQuota: 50_000n, cpuPeriod: 100_000n, memoryLimitInBytes: 67_108_864n } },
  });
  assert.deepEqual(only({ pod: aPod({ containers: [container] }), observed: observe([aSandbox()], [run]) }), {
    name: "c",
    image: "docker.io/library/busybox:1",
    imageID: "docker.io/library/busybox@sha256:1",
    containerID: "containerd://id",
    ready: true,
    started: true,
    restartCount: 2,
    state: { running: { startedAt: "1970-01-01T00:00:05Z" } },
    lastState: {},
    resources: { requests: { cpu: "100m", memory: "64Mi" }, limits: { cpu: "0.5", memory: "64Mi" } },
    allocatedResources: { cpu: "100m", memory: "64Mi" },
    user: { linux: { uid: 1, gid: 2, supplementalGroups: [3] } },
    volumeMounts: [
      { name: "v", mountPath: "/v" },
      { name: "w", mountPath: "/w", readOnly: true, recursiveReadOnly: "Disabled" },
    ],
  });
});

test("with the feature gate, shows a container's stop signal if the runtime reports one", () => {
  const shown = (stopSignal: Signal, stopSignals = true) => {
    const observed = observe([aSandbox()], [running("c1", { stopSignal })]);
    return only({ observed, stopSignals }).stopSignal;
  };
  assert.equal(shown(Signal.SIGUSR1), "SIGUSR1");
  assert.equal(shown(Signal.SIGRTMAXMINUS3), "SIGRTMAX-3");
  assert.equal(shown(Signal.RUNTIME_DEFAULT), undefined);
  assert.equal(shown(Signal.SIGUSR1, false), undefined);
});

test("recursive read-only mounts are taken from the runtime, overriding earlier statuses", () => {
  const volumeMounts = (["IfPossible", "Enabled", undefined] as const).map((recursiveReadOnly, index) => ({
    name: "v",
    mountPath: `/${index}`,
    readOnly: true,
    ...(recursiveReadOnly && { recursiveReadOnly }),
  }));
  const pod = aPod({ containers: [aContainer("c", { volumeMounts })] });
  const modes = ({ volumeMounts: shown }: ReturnType<typeof only>) =>
    shown?.map(({ recursiveReadOnly }) => recursiveReadOnly);
  const waiting = only({ pod });
  assert.deepEqual(modes(waiting), ["Disabled", "Disabled", "Disabled"]);
  const mounts = [
    { containerPath: "/0", recursiveReadOnly: false },
    { containerPath: "/1", recursiveReadOnly: true },
  ];
  const previous = { containerStatuses: [waiting] };
  const run = running("a", { mounts: mounts.map((mount) => Mount.fromPartial(mount)) });
  assert.deepEqual(modes(only({ pod, previous, observed: observe([aSandbox()], [run]) })), [
    "Disabled",
    "Enabled",
    "Disabled",
  ]);
});

test("actual resources come from the runtime while the container runs, otherwise from the spec", () => {
  const container = aContainer("c", {
    resources: { requests: { cpu: "100m" }, limits: { cpu: "500m", memory: "64Mi" } },
  });
  const pod = aPod({ containers: [container] });
  const linux = { cpuShares: 204n, cpuQuota: 150_000n, cpuPeriod: 100_000n, memoryLimitInBytes: 128n * 2n ** 20n };
  const of = (run: ReturnType<typeof running>, inForce?: ResizableAmounts) =>
    only({ pod, observed: observe([aSandbox()], [run]), ...(inForce && { inForce }) }).resources;
  assert.deepEqual(of(running("a", { resources: { linux } })), {
    requests: { cpu: "200m" },
    limits: { cpu: "1500m", memory: "128Mi" },
  });
  assert.deepEqual(of(exited("a", 1, { resources: { linux } })), container.resources);
  assert.deepEqual(of(running("a")), container.resources);
  // A runtime that reports no resources.
  const known = { cpuRequest: 50, cpuLimit: 1000, memoryRequest: 2 ** 20, memoryLimit: 2 ** 25 };
  assert.deepEqual(of(running("a"), known), {
    requests: { cpu: "50m", memory: "1Mi" },
    limits: { cpu: "1", memory: "32Mi" },
  });
  const partly = of(running("a", { resources: { linux } }), known);
  assert.deepEqual([partly?.requests, partly?.limits?.["memory"]], [{ cpu: "200m", memory: "1Mi" }, "128Mi"]);
  assert.deepEqual(of(exited("a", 1), known), container.resources);
});

test("amounts below the runtime's minimum are shown as in the spec", () => {
  const container = aContainer("c", { resources: { requests: { cpu: "1m" }, limits: { cpu: "5m" } } });
  const linux = { cpuShares: 2n, cpuQuota: 1_000n, cpuPeriod: 100_000n };
  const pod = aPod({ containers: [container] });
  const status = only({ pod, observed: observe([aSandbox()], [running("a", { resources: { linux } })]) });
  assert.deepEqual([status.resources, status.allocatedResources], [container.resources, { cpu: "1m" }]);
});

test("created and unknown containers are waiting; one that ran before is lost", () => {
  const shown = (state: ContainerState, previous?: PodStatus) =>
    only({ observed: observe([aSandbox()], [aStatus(c, state, { id: "x" })]), ...(previous && { previous }) });
  assert.deepEqual(shown(ContainerState.CONTAINER_CREATED).state, { waiting: {} });
  assert.deepEqual(shown(ContainerState.CONTAINER_UNKNOWN).state, { waiting: {} });
  const lost = shown(ContainerState.CONTAINER_UNKNOWN, before({ state: { running: {} }, restartCount: 4 }));
  assert.equal(lost.state?.terminated?.reason, "ContainerStatusUnknown");
  assert.equal(lost.state?.terminated?.exitCode, 137);
  assert.equal(lost.restartCount, 5);
});

test("a lost container has reason RestartingAllContainers while all containers restart", () => {
  const rules = [{ action: "RestartAllContainers", exitCodes: { operator: "In", values: [9] } }];
  const asking = aContainer("c", { restartPolicy: "Never", restartPolicyRules: rules });
  const { containerStatuses = [] } = before({ state: { running: {} } });
  const previous = { containerStatuses, conditions: [{ type: "AllContainersRestarting", status: "True" }] };
  const observed = observe([aSandbox()], [aStatus(asking, ContainerState.CONTAINER_UNKNOWN, { id: "x" })]);
  const { terminated } = only({ pod: aPod({ containers: [asking] }), observed, previous }).state ?? {};
  assert.deepEqual([terminated?.reason, terminated?.exitCode], ["RestartingAllContainers", 137]);
});

test("the newest run determines state, the run before it lastState", () => {
  const first = exited("a", 1, { message: "boom" });
  const status = only({ observed: observe([aSandbox()], [first, running("b", { annotations: restarts(1) })]) });
  assert.ok(status.state?.running);
  assert.deepEqual(status.lastState, {
    terminated: {
      exitCode: 1,
      reason: "Error",
      message: "boom",
      startedAt: "1970-01-01T00:00:05Z",
      finishedAt: "1970-01-01T00:00:09Z",
      containerID: "containerd://a",
    },
  });
});

test("the previous status provides lastState and restart count if the runtime no longer has them", () => {
  const terminated = { exitCode: 2, reason: "Error", containerID: "containerd://a" };
  const previous = before({ state: { terminated }, containerID: "containerd://a", restartCount: 6 });
  const status = only({ previous, observed: observe([aSandbox()], [running("b", { annotations: restarts(0) })]) });
  assert.deepEqual(status.lastState, { terminated });
  assert.equal(status.restartCount, 7);
  const again = only({
    previous: { containerStatuses: [status] },
    observed: observe([aSandbox()], [running("b", { annotations: restarts(0) })]),
  });
  assert.equal(again.restartCount, 7);
  assert.deepEqual(again.lastState, { terminated });
});

test("a running container that vanished is lost; a terminated one keeps its state", () => {
  const gone = only({ previous: before({ state: { running: {} }, restartCount: 1 }) });
  assert.deepEqual(gone.state, { waiting: { reason: "ContainerCreating" } });
  assert.deepEqual(gone.lastState, {
    terminated: {
      exitCode: 137,
      reason: "ContainerStatusUnknown",
      message: "The container could not be located when the pod was deleted.  The container used to be Running",
    },
  });
  assert.equal(gone.restartCount, 2);
  const deleted = aPod({}, { deletionTimestamp: "2026-01-01T00:00:00Z" });
  assert.equal(only({ pod: deleted, previous: before({ state: { running: {} }, restartCount: 1 }) }).restartCount, 1);
  const ended = before({ state: { terminated: { exitCode: 0 } } });
  assert.deepEqual(only({ previous: ended }).state, { terminated: { exitCode: 0 } });
});

test("a container that could not be started is waiting with the reason; its termination moves to lastState", () => {
  const failures = { c: { reason: "CrashLoopBackOff", message: "back-off 10s" } };
  const observed = observe([aSandbox()], [exited("a", 1)]);
  const status = only({ observed, failures });
  assert.deepEqual(status.state, { waiting: { reason: "CrashLoopBackOff", message: "back-off 10s" } });
  assert.equal(status.lastState?.terminated?.exitCode, 1);
  assert.ok(only({ observed: observe([aSandbox()], [running("a")]), failures }).state?.running);
  assert.ok(only({ observed, failures, pod: aPod({ restartPolicy: "Never" }) }).state?.terminated);
  assert.ok(
    only({ observed, failures, pod: aPod({}, { deletionTimestamp: "2026-01-01T00:00:00Z" }) }).state?.terminated,
  );
  assert.equal(
    only({ failures: { c: { reason: "ErrImagePull", message: "no" } } }).state?.waiting?.reason,
    "ErrImagePull",
  );
});

test("ready follows the readiness probe, or without one whether the container runs", () => {
  const probed = aPod({ containers: [aContainer("c", { readinessProbe: { exec: { command: ["true"] } } })] });
  const observed = observe([aSandbox()], [running("a")]);
  const ready = (given: Given) => only({ observed, ...given }).ready;
  assert.equal(ready({}), true);
  assert.equal(ready({ pod: probed }), false);
  assert.equal(ready({ pod: probed, verdict: "Success" }), true);
  assert.equal(
    ready({ pod: probed, verdict: "Failure", previous: before({ containerID: "containerd://a", ready: true }) }),
    false,
  );
  // After a restart of the agent, before the first probe result: nothing flips, unless it is another container.
  assert.equal(ready({ pod: probed, previous: before({ containerID: "containerd://a", ready: true }) }), true);
  assert.equal(ready({ pod: probed, previous: before({ containerID: "containerd://old", ready: true }) }), false);
});

test("a container with a startup probe is started once the probe has succeeded", () => {
  const pod = aPod({ containers: [aContainer("c", { startupProbe: { exec: { command: ["true"] } } })] });
  const observed = observe([aSandbox()], [running("a")]);
  assert.deepEqual([only({ pod, observed }).started, only({ pod, observed }).ready], [false, false]);
  const adopted = only({ pod, observed, previous: before({ containerID: "containerd://a", started: true }) });
  assert.deepEqual([adopted.started, adopted.ready], [true, true]);
});

test("init containers: completed ones are ready, missing ones count as completed, in spec order", () => {
  const init: Container[] = [aContainer("z"), aContainer("a")];
  const pod = aPod({ initContainers: init });
  const done = aStatus(aContainer("z"), ContainerState.CONTAINER_EXITED, { exitCode: 0, reason: "Completed" });
  const half = statuses("initContainers", {
    pod,
    observed: observe([aSandbox()], [done]),
    failures: { z: { reason: "X", message: "" } },
  });
  assert.deepEqual(
    half.map(({ name, ready }) => [name, ready]),
    [
      ["z", true],
      ["a", false],
    ],
  );
  assert.ok(half[0]?.state?.terminated);
  const forgotten = statuses("initContainers", { pod, observed: observe([aSandbox()], [running("m")]) });
  assert.deepEqual(
    forgotten.map(({ state }) => state?.terminated?.reason),
    ["Completed", "Completed"],
  );
  assert.equal(
    forgotten[0]?.state?.terminated?.message,
    "Unable to get init container status from container runtime and pod has been initialized, treat it as exited normally",
  );
});

test("a sidecar is ready and started like a main container; a missing one is waiting", () => {
  const sidecar = aContainer("s", { restartPolicy: "Always" });
  const pod = aPod({ restartPolicy: "Never", initContainers: [sidecar] });
  const up = aStatus(sidecar, ContainerState.CONTAINER_RUNNING, { id: "s1" });
  const [status] = statuses("initContainers", { pod, observed: observe([aSandbox()], [up, running("m")]) });
  assert.deepEqual([status?.ready, status?.started], [true, true]);
  const down = aStatus(sidecar, ContainerState.CONTAINER_EXITED, { id: "s1", exitCode: 0 });
  const [gone] = statuses("initContainers", { pod, observed: observe([aSandbox()], [running("m")]) });
  assert.deepEqual(gone?.state, { waiting: { reason: "PodInitializing" } });
  const [ended] = statuses("initContainers", { pod, observed: observe([aSandbox()], [down, running("m")]) });
  assert.equal(ended?.ready, false);
});

test("ephemeral containers have neither ready nor started, and are sorted by name", () => {
  const pod = aPod({ containers: [aContainer("b"), aContainer("a")], ephemeralContainers: [aContainer("e")] });
  const [status] = statuses("ephemeralContainers", {
    pod,
    observed: observe([aSandbox()], [aStatus(aContainer("e"), ContainerState.CONTAINER_RUNNING)]),
  });
  assert.deepEqual([status?.ready, status?.started], [false, undefined]);
  assert.deepEqual(
    statuses("containers", { pod }).map(({ name }) => name),
    ["a", "b"],
  );
});

test("a main container with devices reports their health", () => {
  const gpus = [{ name: "a.b/gpu", resources: [{ resourceID: "0", health: "Unhealthy" }] }];
  const pod = aPod({ containers: [c, aContainer("d")], initContainers: [aContainer("c")] });
  const given = { pod, resourceHealth: (name: string) => (name === "c" ? gpus : []) };
  const shown = statuses("containers", given);
  assert.deepEqual(
    shown.map(({ allocatedResourcesStatus }) => allocatedResourcesStatus),
    [gpus, undefined],
  );
  assert.ok(shown[1] && !("allocatedResourcesStatus" in shown[1]));
  assert.equal(statuses("initContainers", given)[0]?.allocatedResourcesStatus, undefined);
});

test("an interrupted start whose container may have run is marked; other failures have the runtime's text only", () => {
  const messageOf = (message: string) => {
    const run = exited("one", 128, { reason: "StartError", startedAt: 0n, message });
    return only({ observed: observe([aSandbox()], [run]) }).state?.terminated?.message;
  };
  const cut = 'failed to start containerd task "one": context canceled: unknown';
  assert.equal(
    messageOf(cut),
    `${cut}: the agent lost its connection to the runtime while starting the container, which may have run`,
  );
  const refused = "failed to create containerd task: OCI runtime create failed: no such program";
  assert.equal(messageOf(refused), refused);
});

test("with the feature gate, mounts of image volumes show the image that the runtime has mounted", () => {
  const volumeMounts = ["image", "disk"].map((name) => ({ name, mountPath: `/${name}` }));
  const pod = aPod({
    containers: [aContainer("c", { volumeMounts })],
    volumes: [
      { name: "image", image: { reference: "busybox:1" } },
      { name: "disk", emptyDir: {} },
    ],
  });
  const mounts = [Mount.fromPartial({ containerPath: "/image", image: { image: "sha256:1" } })];
  const observed = observe([aSandbox()], [running("c1", { mounts })]);
  const shown = { name: "image", mountPath: "/image", volumeStatus: { image: { imageRef: "sha256:1" } } };
  assert.deepEqual(only({ pod, observed, imageVolumeDigests: true }).volumeMounts, [shown, volumeMounts[1]]);
  assert.deepEqual(only({ pod, observed }).volumeMounts, volumeMounts);
});
