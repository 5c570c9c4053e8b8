import assert from "node:assert/strict";
import { test } from "node:test";
import { ContainerState, type ContainerStatus } from "../../../src/gen/cri.ts";
import type { Container, Resources } from "../../../src/objects.ts";
import { inResizeOrder } from "../../../src/runtime/plan-resize.ts";
import { planPod } from "../../../src/runtime/plan.ts";
import { aContainer, aPod, aSandbox, aStatus, observe } from "../../fakes/pods.ts";
import { stepLines } from "./step-lines.ts";

const { CONTAINER_RUNNING: running, CONTAINER_EXITED: exited } = ContainerState;
const has = (cpu: string, memory: string): Resources => ({ requests: { cpu, memory }, limits: { cpu, memory } });
const before = has("100m", "64Mi");
const actualResources = (_status: ContainerStatus) => before;

function planFor(containers: readonly Container[], more: Parameters<typeof planPod>[2] = {}) {
  const statuses = containers.map((container) => aStatus(container, running));
  const pod = aPod({ containers: [...containers] });
  return { statuses, steps: planPod(pod, observe([aSandbox()], statuses), { actualResources, ...more }) };
}

test("a container that already has its allocated resources, in any notation, is left alone", () => {
  const same = aContainer("c", { resources: has("0.1", "65536Ki") });
  assert.deepEqual(planFor([same]).steps, []);
});

test("a container with changed resources is resized in place", () => {
  const larger = aContainer("c", { resources: has("200m", "64Mi") });
  const { steps, statuses } = planFor([larger]);
  const resize = { container: larger, containerId: statuses[0]?.id, from: before, to: has("200m", "64Mi") };
  assert.deepEqual(steps, [{ kind: "resize", containers: [resize], wholePod: false }]);
});

test("the RestartContainer policy applies to its own resource only", () => {
  const resizePolicy = [{ resourceName: "memory", restartPolicy: "RestartContainer" }];
  const planned = (resources: Resources) => stepLines(planFor([aContainer("c", { resizePolicy, resources })]).steps);
  assert.deepEqual(planned(has("200m", "64Mi")), ["resize c"]);
  assert.deepEqual(planned(has("100m", "32Mi")), [
    "kill c: Container c resize requires restart",
    "resize pod",
    "use sandbox 0",
    "start c",
  ]);
});

test("a container that is not running, or is replaced anyway, is not resized", () => {
  const c = aContainer("c", { resources: has("200m", "64Mi") });
  const ended = planPod(aPod({ containers: [c] }), observe([aSandbox()], [aStatus(c, exited)]), { actualResources });
  assert.deepEqual(stepLines(ended), ["use sandbox 0", "start c"]);
  assert.deepEqual(stepLines(planFor([c], { failedProbe: () => "liveness" }).steps), [
    "kill c: Container c failed liveness probe, will be restarted",
    "use sandbox 0",
    "start c",
  ]);
  assert.deepEqual(planFor([c], { actualResources: () => undefined }).steps, []);
});

test("running sidecars and init containers are resized before main containers have started", () => {
  const resizePolicy = [{ resourceName: "cpu", restartPolicy: "RestartContainer" }];
  const sidecar = aContainer("s", { restartPolicy: "Always", resources: has("200m", "64Mi") });
  const restarting = aContainer("r", { restartPolicy: "Always", resizePolicy, resources: has("200m", "64Mi") });
  const init = aContainer("i", { resources: has("100m", "80Mi") });
  const pod = aPod({ initContainers: [sidecar, restarting, init] });
  const runs = [sidecar, restarting, init].map((container) => aStatus(container, running));
  assert.deepEqual(stepLines(planPod(pod, observe([aSandbox()], runs), { actualResources })), [
    "kill r: Container r resize requires restart",
    "resize s i pod",
    "use sandbox 0",
    "start init r",
  ]);
});

test("changed pod-level resources resize the pod and those containers that have no resources of their own", () => {
  const c = aContainer("c", { resources: { requests: { cpu: "10m" } } });
  const pod = aPod({ containers: [c], resources: has("2", "1Gi") });
  const seen = observe([aSandbox()], [aStatus(c, running)]);
  const was = { requests: { cpu: "10m" }, limits: { cpu: "1", memory: "1Gi" } };
  const [resize, ...more] = planPod(pod, seen, {
    actualResources: () => was,
    actualPodResources: () => has("1", "1Gi"),
  });
  assert.ok(resize?.kind === "resize" && resize.wholePod && more.length === 0);
  assert.deepEqual(
    resize.containers.map(({ to }) => to.limits),
    [{ cpu: "2", memory: "1Gi" }],
  );
  assert.deepEqual(planPod(pod, seen), []);
  assert.deepEqual(stepLines(planPod(pod, seen, { podCgroupIsStale: true })), ["resize pod"]);
});

test("decreases come before increases, compared by limit, otherwise by request", () => {
  const change = (name: string, from: Resources, to: Resources) => ({
    container: aContainer(name),
    containerId: name,
    from,
    to,
  });
  const resizes = [
    change("more", before, has("150m", "64Mi")),
    change("less", before, has("50m", "64Mi")),
    change("only-memory", before, has("100m", "1Mi")),
    change("request", before, { requests: { cpu: "50m" }, limits: before.limits ?? {} }),
    change("least", before, has("10m", "64Mi")),
  ];
  const order = (name: "cpu" | "memory") => inResizeOrder(resizes, name).map(({ containerId }) => containerId);
  assert.deepEqual(order("cpu"), ["least", "request", "less", "more"]);
  assert.deepEqual(order("memory"), ["request", "only-memory"]);
});
