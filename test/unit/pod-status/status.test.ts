import assert from "node:assert/strict";
import { test } from "node:test";
import { ContainerState, NamespaceMode, PodSandboxState, PodSandboxStatus } from "../../../src/gen/cri.ts";
import type { Pod, PodCondition, PodStatus } from "../../../src/objects.ts";
import { generateStatus, type PodStatusInput } from "../../../src/status/generate/generate-status.ts";
import { aContainer, aPod, aSandbox, aStatus, observe } from "../../fakes/pods.ts";

const c = aContainer("c");
const up = () => aStatus(c, ContainerState.CONTAINER_RUNNING, { id: "up" });

function generate(more: Partial<PodStatusInput> = {}): PodStatus {
  return generateStatus({
    pod: aPod(),
    observed: undefined,
    previous: undefined,
    failures: new Map(),
    readiness: () => undefined,
    started: () => undefined,
    actualResources: () => undefined,
    resize: [],
    actualPodResources: undefined,
    hostIPs: ["10.1.0.1"],
    isTerminating: false,
    stopSignals: false,
    imageVolumeDigests: false,
    runtimeName: "containerd",
    ...more,
  });
}

function condition(status: PodStatus, type: string): Partial<PodCondition> | undefined {
  const found = status.conditions?.find((one) => one.type === type);
  if (!found) return undefined;
  const { type: _type, ...rest } = found;
  return rest;
}

const withStatus = (pod: Pod, status: PodStatus): Pod => ({ ...pod, status });

test("a new pod is Pending and scheduled, with nothing ready", () => {
  const status = generate({ pod: aPod({ initContainers: [aContainer("i")] }, { generation: 3 }) });
  assert.equal(status.phase, "Pending");
  assert.deepEqual(status.conditions, [
    { type: "PodReadyToStartContainers", observedGeneration: 3, status: "False" },
    {
      type: "Initialized",
      observedGeneration: 3,
      status: "False",
      reason: "ContainersNotInitialized",
      message: "containers with incomplete status: [i]",
    },
    {
      type: "Ready",
      observedGeneration: 3,
      status: "False",
      reason: "ContainersNotReady",
      message: "containers with unready status: [c]",
    },
    {
      type: "ContainersReady",
      observedGeneration: 3,
      status: "False",
      reason: "ContainersNotReady",
      message: "containers with unready status: [c]",
    },
    { type: "PodScheduled", observedGeneration: 3, status: "True" },
  ]);
  assert.equal(status.qosClass, "BestEffort");
  assert.deepEqual([status.hostIP, status.hostIPs, status.podIP], ["10.1.0.1", [{ ip: "10.1.0.1" }], undefined]);
});

test("a running pod is Running with all conditions True and its addresses", () => {
  const status = generate({ observed: observe([aSandbox()], [up()]) });
  assert.equal(status.phase, "Running");
  assert.deepEqual(new Set(status.conditions?.map((one) => one.status)), new Set(["True"]));
  assert.deepEqual([status.podIP, status.podIPs], ["10.0.0.2", [{ ip: "10.0.0.2" }]]);
});

test("a sandbox to be replaced is not ready to start containers", () => {
  const ready = (...sandboxes: Parameters<typeof aSandbox>[0][]) =>
    condition(
      generate({
        observed: observe(
          sandboxes.map((one) => aSandbox(one)),
          [],
        ),
      }),
      "PodReadyToStartContainers",
    )?.status;
  assert.equal(ready({}), "True");
  assert.equal(ready({ state: PodSandboxState.SANDBOX_NOTREADY }), "False");
  assert.equal(ready({}, {}), "False");
  assert.equal(ready({ network: { ip: "", additionalIps: [] } }), "False");
  const hostMode = aSandbox(
    PodSandboxStatus.fromPartial({
      state: PodSandboxState.SANDBOX_READY,
      linux: { namespaces: { options: { network: NamespaceMode.NODE } } },
    }),
  );
  assert.equal(
    condition(generate({ observed: observe([hostMode], []) }), "PodReadyToStartContainers")?.status,
    "False",
  );
  assert.equal(
    condition(
      generate({ pod: aPod({ hostNetwork: true }), observed: observe([hostMode], []) }),
      "PodReadyToStartContainers",
    )?.status,
    "True",
  );
});

test("readiness gates delay Ready; conditions of other components come first", () => {
  const pod = aPod({ readinessGates: [{ conditionType: "a/b" }, { conditionType: "c/d" }] });
  const observed = observe([aSandbox()], [up()]);
  const foreign = { type: "c/d", status: "False" };
  const status = generate({
    pod: withStatus(pod, { conditions: [foreign, { type: "Ready", status: "True" }] }),
    observed,
  });
  assert.deepEqual(status.conditions?.[0], foreign);
  assert.deepEqual(condition(status, "Ready"), {
    status: "False",
    reason: "ReadinessGatesNotReady",
    message:
      'corresponding condition of pod readiness gate "a/b" does not exist., the status of pod readiness gate "c/d" is not "True", but False',
  });
  assert.equal(condition(status, "ContainersReady")?.status, "True");
  const open = [
    { type: "a/b", status: "True" },
    { type: "c/d", status: "True" },
  ];
  assert.equal(condition(generate({ pod: withStatus(pod, { conditions: open }), observed }), "Ready")?.status, "True");
});

test("a finished pod has reason PodCompleted or PodFailed", () => {
  const ended = (exitCode: number) => {
    const run = aStatus(c, ContainerState.CONTAINER_EXITED, { exitCode });
    return generate({ pod: aPod({ restartPolicy: "Never" }), observed: observe([aSandbox()], [run]) });
  };
  assert.equal(ended(0).phase, "Succeeded");
  assert.deepEqual(condition(ended(0), "Ready"), { status: "False", reason: "PodCompleted" });
  assert.deepEqual(condition(ended(0), "Initialized"), { status: "True", reason: "PodCompleted" });
  assert.equal(ended(2).phase, "Failed");
  assert.deepEqual(condition(ended(2), "ContainersReady"), { status: "False", reason: "PodFailed" });
});

test("a final phase is kept, with its reason and message", () => {
  const observed = observe([aSandbox()], [up()]);
  const final: PodStatus = { phase: "Failed", reason: "Evicted", message: "no room" };
  const kept = generate({ pod: aPod(), previous: final, observed });
  assert.deepEqual([kept.phase, kept.reason, kept.message], ["Failed", "Evicted", "no room"]);
  assert.equal(
    generate({ pod: withStatus(aPod(), { phase: "Succeeded" }), previous: final, observed }).phase,
    "Succeeded",
  );
  const moved = generate({ previous: { phase: "Pending", reason: "Waits" }, observed });
  assert.deepEqual([moved.phase, moved.reason], ["Running", undefined]);
});

test("an initialized pod stays initialized while its init containers run again", () => {
  const pod = aPod({ initContainers: [aContainer("i")] });
  const previous = { conditions: [{ type: "Initialized", status: "True" }] };
  const again = observe([aSandbox()], [aStatus(aContainer("i"), ContainerState.CONTAINER_RUNNING)]);
  assert.equal(condition(generate({ pod, previous, observed: again }), "Initialized")?.status, "True");
  assert.equal(condition(generate({ pod, observed: again }), "Initialized")?.status, "False");
});

test("addresses: one per family, the host's family first, the last known while no sandbox is ready", () => {
  const dual = { ...observe([aSandbox()], [up()]), ips: ["fd00::2", "10.0.0.2", "10.0.0.3"] };
  assert.deepEqual(generate({ observed: dual }).podIPs, [{ ip: "10.0.0.2" }, { ip: "fd00::2" }]);
  assert.deepEqual(generate({ observed: dual, hostIPs: ["fd00::1", "10.1.0.1"] }).podIPs, [
    { ip: "fd00::2" },
    { ip: "10.0.0.2" },
  ]);
  const gone = observe([aSandbox({ state: PodSandboxState.SANDBOX_NOTREADY, network: undefined })], []);
  assert.equal(
    generate({ observed: gone, previous: { podIP: "10.0.0.9", podIPs: [{ ip: "10.0.0.9" }] } }).podIP,
    "10.0.0.9",
  );
});

test("a hostNetwork pod has the host's current addresses, or those that the runtime reports", () => {
  const pod = aPod({ hostNetwork: true });
  const both = ["10.1.0.1", "fd00::1"];
  assert.deepEqual(generate({ pod, hostIPs: both }).podIPs, [{ ip: "10.1.0.1" }, { ip: "fd00::1" }]);
  const previous = { podIPs: [{ ip: "10.1.0.9" }] };
  assert.deepEqual(generate({ pod, previous, hostIPs: both }).podIPs, [{ ip: "10.1.0.1" }, { ip: "fd00::1" }]);
  assert.deepEqual(generate({ pod, previous, hostIPs: [] }).podIPs, [{ ip: "10.1.0.9" }]);
  const told = { ...observe([aSandbox()], [up()]), ips: ["10.1.0.5"] };
  assert.deepEqual(generate({ pod, observed: told }).podIPs, [{ ip: "10.1.0.5" }]);
  assert.deepEqual(generate({ pod, observed: told, hostIPs: both }).podIPs, [{ ip: "10.1.0.5" }, { ip: "fd00::1" }]);
});

test("an unchanged state gives an unchanged status", () => {
  const observed = observe(
    [aSandbox()],
    [aStatus(c, ContainerState.CONTAINER_EXITED, { id: "old", exitCode: 1 }), up()],
  );
  const first = generate({ observed });
  assert.deepEqual(generate({ observed, previous: first }), first);
});

const asking = aContainer("c", {
  restartPolicy: "Never",
  restartPolicyRules: [{ action: "RestartAllContainers", exitCodes: { operator: "In", values: [9] } }],
});

test("after a RestartAllContainers exit the pod keeps running and reports the restart until all containers are removed", () => {
  const other = aContainer("d");
  const pod = aPod({ restartPolicy: "Never", containers: [asking, other] });
  const box = aSandbox();
  const runsOn = aStatus(other, ContainerState.CONTAINER_RUNNING, { id: "d1" });
  const before = generate({
    pod,
    observed: observe([box], [aStatus(asking, ContainerState.CONTAINER_RUNNING), runsOn]),
  });
  assert.deepEqual([before.phase, condition(before, "AllContainersRestarting")], ["Running", { status: "False" }]);
  const over = aStatus(asking, ContainerState.CONTAINER_EXITED, { id: "c1", exitCode: 9 });
  const during = generate({ pod, previous: before, observed: observe([box], [over, runsOn]) });
  assert.equal(during.phase, "Running");
  assert.deepEqual(condition(during, "AllContainersRestarting"), {
    status: "True",
    reason: "RestartAllContainersStarted",
    message: "container exited with restart policy rule",
  });
  // Half of the containers are removed.
  const half = generate({ pod, previous: during, observed: observe([box], [over]) });
  assert.equal(condition(half, "AllContainersRestarting")?.status, "True");
  assert.equal(half.containerStatuses?.[1]?.state?.waiting?.reason, "RestartingAllContainers");
  const after = generate({ pod, previous: half, observed: observe([box], []) });
  assert.deepEqual([after.phase, condition(after, "AllContainersRestarting")], ["Running", { status: "False" }]);
  assert.deepEqual(
    after.containerStatuses?.map(({ restartCount, ready, state, lastState }) => [
      restartCount,
      ready,
      state?.waiting?.reason,
      lastState?.terminated?.reason,
      lastState?.terminated?.exitCode,
    ]),
    [
      [1, false, "RestartingAllContainers", "RestartingAllContainers", 137],
      [1, false, "ContainerCreating", "RestartingAllContainers", 137],
    ],
  );
  const again = aStatus(asking, ContainerState.CONTAINER_RUNNING, { id: "c2" });
  const anew = generate({ pod, previous: after, observed: observe([box], [again]) });
  assert.deepEqual(
    [anew.containerStatuses?.[0]?.restartCount, condition(anew, "AllContainersRestarting")],
    [1, { status: "False" }],
  );
});

test("AllContainersRestarting has no observedGeneration", () => {
  const pod = aPod({ containers: [asking] }, { generation: 3 });
  const status = generate({
    pod,
    observed: observe([aSandbox()], [aStatus(asking, ContainerState.CONTAINER_RUNNING)]),
  });
  assert.deepEqual(condition(status, "AllContainersRestarting"), { status: "False" });
  assert.equal(condition(status, "Ready")?.observedGeneration, 3);
});

test("a pod without RestartAllContainers rules has no such condition", () => {
  assert.equal(condition(generate(), "AllContainersRestarting"), undefined);
});

test("resize conditions come after other components' conditions and before the kubelet's, until the pod ends", () => {
  const resize = [{ type: "PodResizeInProgress", status: "True", observedGeneration: 4 }];
  const foreign = { type: "example.com/ready", status: "True" };
  const pod = withStatus(aPod(), { conditions: [{ type: "PodResizePending", status: "True" }, foreign] });
  const types = (status: PodStatus) => status.conditions?.map(({ type }) => type).slice(0, 3);
  assert.deepEqual(types(generate({ pod, resize })), [
    "example.com/ready",
    "PodResizeInProgress",
    "PodReadyToStartContainers",
  ]);
  const over = withStatus(aPod(), { phase: "Failed" });
  assert.equal(
    generate({ pod: over, resize }).conditions?.some(({ type }) => type === "PodResizeInProgress"),
    false,
  );
});

test("a pod with pod-level resources shows the allocated resources and, while running, the actual ones", () => {
  const resources = { requests: { cpu: "2", memory: "1Gi", "hugepages-2Mi": "4Mi" }, limits: { cpu: "2" } };
  const pod = aPod({ resources });
  const actualPodResources = { requests: { cpu: "1", memory: "1Gi" }, limits: { cpu: "1" } };
  const running = generate({ pod, actualPodResources, observed: observe([aSandbox()], [up()]) });
  assert.deepEqual(running.resources, { requests: { ...resources.requests, cpu: "1" }, limits: { cpu: "1" } });
  assert.deepEqual(running.allocatedResources, resources.requests);
  assert.deepEqual(generate({ pod, actualPodResources }).resources, resources);
});

test("a pod without pod-level resources shows its containers' sums and, while running, its cgroup's resources", () => {
  const resources = { requests: { cpu: "100m", "ephemeral-storage": "1Gi" }, limits: { cpu: "200m", memory: "1Gi" } };
  const limited = ["c", "d"].map((name) => aContainer(name, { resources }));
  const runs = (...names: readonly string[]) =>
    observe(
      [aSandbox()],
      names.map((name) => aStatus(aContainer(name), ContainerState.CONTAINER_RUNNING)),
    );
  const pod = aPod({ containers: limited, overhead: { cpu: "50m" } });
  const requests = { cpu: "250m", "ephemeral-storage": "2Gi" };
  const limits = { cpu: "450m", memory: "2Gi" };
  const waiting = generate({ pod });
  assert.deepEqual([waiting.resources, waiting.allocatedResources], [{ requests, limits }, requests]);
  const running = generate({ pod, observed: runs("c", "d") });
  assert.deepEqual([running.resources, running.allocatedResources], [{ requests: { cpu: "250m" }, limits }, requests]);
  const onlyOne = aPod({ containers: [aContainer("c", { resources }), aContainer("d")] });
  assert.deepEqual(generate({ pod: onlyOne, observed: runs("c", "d") }).resources, { requests: { cpu: "100m" } });
  const least = aPod({
    containers: [aContainer("c", { resources: { requests: { cpu: "2m" }, limits: { cpu: "10m" } } })],
  });
  const small = generate({ pod: least, observed: runs("c") });
  assert.deepEqual([small.resources, small.allocatedResources], [{}, { cpu: "2m" }]);
  assert.deepEqual(generate({}).resources, {});
});
