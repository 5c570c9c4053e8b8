import assert from "node:assert/strict";
import { test } from "node:test";
import { ContainerState } from "../../../src/gen/cri.ts";
import { allocatedPod } from "../../../src/roles.ts";
import { aContainer, aPod, aSandbox, aStatus, observe } from "../../fakes/pods.ts";
import { type StatusGeneratorDeps, createStatusGenerator } from "../../../src/status/generate/generate-status.ts";

const container = aContainer("c", {
  resources: { requests: { cpu: "100m" } },
  readinessProbe: { tcpSocket: { port: 1 } },
});
const pod = aPod({ containers: [container] });
const running = observe([aSandbox()], [aStatus(container, ContainerState.CONTAINER_RUNNING, { id: "up" })]);

function generator(more: Partial<StatusGeneratorDeps> = {}) {
  return createStatusGenerator({
    status: { get: () => undefined },
    starts: { get: () => undefined },
    resizeConditions: () => [],
    isPlaceholder: () => false,
    allocations: { allocatedPod, podResources: () => undefined, containerResources: () => ({}) },
    probes: { readiness: () => undefined, started: () => undefined },
    resourceHealth: undefined,
    stopSignals: true,
    imageVolumeDigests: false,
    hostIPs: () => ["10.1.0.1"],
    runtimeName: () => "containerd",
    ...more,
  });
}

test("shows the runtime's name, the host's IPs and the allocated resources", () => {
  const cpu = { requests: { cpu: "250m" } };
  const allocated: Partial<StatusGeneratorDeps> = {
    allocations: { allocatedPod, podResources: () => undefined, containerResources: () => cpu },
  };
  const status = generator(allocated)(pod, running, false);
  assert.deepEqual([status.phase, status.hostIP], ["Running", "10.1.0.1"]);
  assert.equal(status.containerStatuses?.[0]?.containerID, "containerd://up");
  assert.equal(status.containerStatuses?.[0]?.resources?.requests?.["cpu"], "250m");
  assert.equal(
    generator({ runtimeName: () => undefined })(pod, running, false).containerStatuses?.[0]?.containerID,
    "://up",
  );
});

test("a placeholder shows no containers", () => {
  const status = generator({ isPlaceholder: () => true })(pod, running, false);
  assert.deepEqual([status.reason, status.containerStatuses], ["NotRunByGraftlet", undefined]);
});

test("shows why a container does not start, its readiness, and the progress of a resize", () => {
  const nothing = observe([aSandbox()], []);
  const failures = new Map([["c", { reason: "ErrImagePull", message: "no such image" }]]);
  const waiting = generator({ starts: { get: () => ({ inProgress: new Set(), failures }) } })(pod, nothing, false);
  assert.equal(waiting.containerStatuses?.[0]?.state?.waiting?.reason, "ErrImagePull");
  const readiness = (verdict: "Success" | "Failure") =>
    generator({ probes: { readiness: () => verdict, started: () => true } })(pod, running, false).containerStatuses?.[0]
      ?.ready;
  assert.deepEqual([readiness("Success"), readiness("Failure")], [true, false]);
  const resize = { type: "PodResizePending", status: "True" };
  const { conditions } = generator({ resizeConditions: (uid) => (uid === pod.metadata.uid ? [resize] : []) })(
    pod,
    running,
    false,
  );
  assert.ok(conditions?.some(({ type }) => type === "PodResizePending"));
});

test("shows the health of resources if the node reports it", () => {
  const health = [{ name: "example.com/gpu", resources: [{ resourceID: "0", health: "Unhealthy" }] }];
  const resourceHealth: StatusGeneratorDeps["resourceHealth"] = ({ metadata }, name) =>
    metadata.uid === pod.metadata.uid && name === "c" ? health : [];
  const shown = (deps: Partial<StatusGeneratorDeps>) =>
    generator(deps)(pod, running, false).containerStatuses?.[0]?.allocatedResourcesStatus;
  assert.deepEqual([shown({ resourceHealth }), shown({})], [health, undefined]);
});
