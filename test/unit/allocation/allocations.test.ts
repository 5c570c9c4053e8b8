import assert from "node:assert/strict";
import { test } from "node:test";
import { ContainerState, type ContainerStatus } from "../../../src/gen/cri.ts";
import { CodedError } from "../../../src/lib/errors.ts";
import { createLogger } from "../../../src/lib/log.ts";
import type { Resources } from "../../../src/objects.ts";
import { resourcesAnnotation } from "../../../src/pod/labels.ts";
import { resourcesAnnotationValue } from "../../../src/pod/pod-resources.ts";
import { createAllocations } from "../../../src/allocation/allocations.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { fakeHost } from "../../fakes/host.ts";
import { type TestPod, aContainer, aPod, aSandbox, aStatus, observe } from "../../fakes/pods.ts";
import type { AllocatedPod } from "../../../src/roles.ts";
import { never } from "../../fakes/signals.ts";
import { aColumn } from "../../fakes/state.ts";

const file = "/root/graftlet/resources.json";
const cpu = (amount: string): Resources => ({ requests: { cpu: amount }, limits: { cpu: amount } });
const podOf = (amount: string, more: Partial<TestPod["spec"]> = {}) =>
  aPod({ containers: [aContainer("c", { resources: cpu(amount) })], ...more });
const given = (pod: AllocatedPod) => pod.spec.containers[0]?.resources?.requests?.["cpu"];

/** A container that runs, with what it was made with, unless a kubelet made it. */
function running(pod: TestPod, id = "c-1", noted = true): ContainerStatus {
  const container = pod.spec.containers[0] ?? aContainer("c");
  const status = aStatus(container, ContainerState.CONTAINER_RUNNING, { id });
  const annotations = {
    ...status.annotations,
    ...(noted && { [resourcesAnnotation]: resourcesAnnotationValue(pod, container) }),
  };
  return { ...status, annotations };
}

/** A target that outlives the agents on it. */
function target() {
  const clock = fakeClock();
  const host = fakeHost({ clock });
  host.files.put("/root/graftlet/lock");
  let seen = observe([aSandbox()], []);
  const lines: string[] = [];
  const start = async () => {
    const allocations = createAllocations({
      fs: host.fs,
      rootDir: "/root",
      podCache: { get: () => seen },
      privateColumn: aColumn,
      clock,
      log: createLogger(0, { write: (line: string) => void lines.push(line) }),
    });
    await allocations.records.ready?.(never);
    return allocations;
  };
  const shows = (...runs: readonly ContainerStatus[]) => void (seen = observe([aSandbox()], runs));
  return { host, start, shows, lines, clock };
}

test("allocates the requested resources to a new pod without writing a record", async () => {
  const { host, start } = target();
  const allocations = await start();
  const pod = podOf("100m");
  allocations.addPod(pod);
  assert.equal(allocations.allocatedPod(pod), pod);
  assert.equal(given(allocations.allocatedPod(podOf("200m"))), "100m");
  assert.deepEqual(host.files.changes, []);
});

test("applies a new allocation to containers that start later; running containers keep the old one until it is actuated", async () => {
  const { start, shows } = target();
  const allocations = await start();
  const [before, after] = [podOf("100m"), podOf("200m")];
  const [old, young] = [running(before), running(after, "c-2")];
  allocations.addPod(before);
  shows(old);
  await allocations.allocate(after);
  assert.equal(given(allocations.allocatedPod(after)), "200m");
  assert.deepEqual(allocations.containerResources(after, old), cpu("100m"));
  assert.deepEqual(allocations.containerResources(after, young), cpu("200m"));
  await allocations.setContainerResources("uid-1", "c-1", cpu("200m"));
  assert.deepEqual(allocations.containerResources(after, old), cpu("200m"));
});

test("after a restart, restores allocated and actuated resources, and notices a changed request", async () => {
  const { start, shows } = target();
  const first = await start();
  const [small, large, larger] = [podOf("100m"), podOf("200m"), podOf("300m")];
  const run = running(small);
  shows(run);
  first.addPod(small);
  await first.allocate(large);
  const second = await start();
  second.addPod(larger);
  assert.equal(given(second.allocatedPod(larger)), "200m");
  assert.deepEqual(second.containerResources(larger, run), cpu("100m"));
  await second.setContainerResources("uid-1", "c-1", cpu("200m"));
  assert.deepEqual((await start()).containerResources(large, run), cpu("200m"));
});

test("restores the allocation of a pod that was never resized from its containers, regardless of its current request", async () => {
  const { start, shows } = target();
  const run = running(podOf("100m"));
  shows(run);
  const allocations = await start();
  allocations.addPod(podOf("200m"));
  assert.equal(given(allocations.allocatedPod(podOf("200m"))), "100m");
  assert.deepEqual(allocations.containerResources(podOf("200m"), run), cpu("100m"));
});

test("reads the allocation of a pod that a kubelet started from the kubelet's checkpoints", async () => {
  const { host, start, shows } = target();
  const checkpoint = (amount: string) => {
    const entries = { "uid-1": { ContainerResources: { c: cpu(amount) }, PodLevelResources: null } };
    return JSON.stringify({ data: JSON.stringify({ entries }), checksum: 1 });
  };
  host.files.put("/root/allocated_pods_state", { data: checkpoint("200m") });
  host.files.put("/root/actuated_pods_state", { data: checkpoint("100m") });
  const run = running(podOf("300m"), "c-1", false);
  shows(run);
  const allocations = await start();
  allocations.addPod(podOf("300m"));
  assert.equal(given(allocations.allocatedPod(podOf("300m"))), "200m");
  assert.deepEqual(allocations.containerResources(podOf("200m"), run), cpu("100m"));
});

test("without a record, treats the resources requested when the pod was added as actuated", async () => {
  const { host, start, shows } = target();
  host.files.put("/root/allocated_pods_state", { data: "{torn" });
  const run = running(podOf("100m"), "c-1", false);
  shows(run);
  const allocations = await start();
  allocations.addPod(podOf("100m"));
  await allocations.allocate(podOf("200m"));
  assert.deepEqual(allocations.containerResources(podOf("200m"), run), cpu("100m"));
});

test("renames a corrupt record, and uses the resources with which the containers were created", async () => {
  const { host, start, shows, lines } = target();
  shows(running(podOf("100m")));
  for (const torn of ['{"version":1,"pods":{', '{"version":2,"pods":{}}']) {
    host.files.put(file, { data: torn });
    const allocations = await start();
    allocations.addPod(podOf("200m"));
    assert.equal(given(allocations.allocatedPod(podOf("200m"))), "100m");
    assert.equal(host.files.text(`${file}.torn`), torn);
    assert.deepEqual(host.files.tree("/root/graftlet"), ["/root/graftlet/lock", `${file}.torn`]);
  }
  assert.match(lines[0] ?? "", /cannot parse the resource record; renaming it/);
});

test("keeps records of pods that have not been added yet, and drops records of pods that are gone", async () => {
  const { start, shows } = target();
  const first = await start();
  const other = (amount: string): TestPod => ({
    ...podOf(amount),
    metadata: { ...podOf(amount).metadata, uid: "uid-2" },
  });
  for (const [small, large] of [[podOf("100m"), podOf("200m")] as const, [other("100m"), other("200m")] as const]) {
    first.addPod(small);
    await first.allocate(large);
  }
  shows();
  const second = await start();
  second.addPod(podOf("200m"));
  await second.allocate(podOf("300m"));
  const third = await start();
  third.addPod(other("100m"));
  assert.equal(given(third.allocatedPod(other("100m"))), "200m");
  third.pruneRecords(new Set(["uid-2"]));
  await third.allocate(other("300m"));
  const fourth = await start();
  for (const pod of [podOf("1"), other("1")]) fourth.addPod(pod);
  assert.deepEqual([given(fourth.allocatedPod(podOf("1"))), given(fourth.allocatedPod(other("1")))], ["1", "300m"]);
});

test("restores the checkpointed allocation of a pod without containers after a restart, regardless of its request", async () => {
  const { host, start } = target();
  const allocations = await start();
  allocations.addPod(podOf("100m"));
  await allocations.checkpoint(podOf("800m"));
  const written = host.files.changes.length;
  await allocations.checkpoint(podOf("900m"));
  assert.equal(host.files.changes.length, written, "once");
  const again = await start();
  again.addPod(podOf("900m"));
  assert.equal(given(again.allocatedPod(podOf("900m"))), "100m");
});

test("counts a pod with at least its actuated resources, even if its allocation is lower", async () => {
  const { start, shows } = target();
  const allocations = await start();
  const [before, less, more] = [podOf("500m"), podOf("200m"), podOf("700m")];
  shows(running(before));
  allocations.addPod(before);
  assert.equal(allocations.effectivePod(before), before);
  await allocations.allocate(less);
  assert.deepEqual(allocations.effectivePod(less).spec.containers[0]?.resources, cpu("500m"));
  assert.equal(given(allocations.allocatedPod(less)), "200m");
  await allocations.setContainerResources("uid-1", "c-1", cpu("200m"));
  assert.equal(given(allocations.effectivePod(less)), "200m");
  await allocations.allocate(more);
  assert.equal(given(allocations.effectivePod(more)), "700m");
});

test("does not allocate if the checkpoint fails", async () => {
  const { host, start } = target();
  const allocations = await start();
  allocations.addPod(podOf("100m"));
  host.files.onChange(() => {
    throw new CodedError("resource_exhausted", "no space left");
  });
  await assert.rejects(allocations.allocate(podOf("200m")));
  assert.equal(given(allocations.allocatedPod(podOf("200m"))), "100m");
});

test("tracks allocated and actuated pod-level resources separately, and uses them as defaults for containers", async () => {
  const { start, shows } = target();
  const allocations = await start();
  const whole = (amount: string) => aPod({ containers: [aContainer("c")], resources: cpu(amount) });
  const run = running(whole("1"));
  shows(run);
  allocations.addPod(whole("1"));
  assert.deepEqual(allocations.containerResources(whole("1"), run), { requests: {}, limits: { cpu: "1" } });
  await allocations.allocate(whole("2"));
  assert.deepEqual(
    [allocations.allocatedPod(whole("3")).spec.resources, allocations.podResources(whole("2"))],
    [cpu("2"), cpu("1")],
  );
  await allocations.setPodResources("uid-1", cpu("2"));
  const again = await start();
  again.addPod(whole("2"));
  assert.deepEqual(again.podResources(whole("2")), cpu("2"));
});
