import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import type { Pod } from "../../src/objects.ts";
import { type Agent, startGraftlet } from "../harness/agent.ts";
import { type Cluster, startCluster } from "../harness/cluster.ts";
import { cgroupValue, processStatus } from "../harness/pod-machine.ts";
import { type ContainerDraft, type Pods, containerId, firstProcess, openPods, shell } from "../harness/pods.ts";
import { patience } from "../harness/wait.ts";

/** CPU 0 and 256 MiB of NUMA node 0 are reserved. */
const config = {
  cpuManagerPolicy: "static",
  reservedSystemCPUs: "0",
  memoryManagerPolicy: "Static",
  systemReserved: { memory: "156Mi" },
  reservedMemory: [{ numaNode: 0, limits: { memory: "256Mi" } }],
  topologyManagerPolicy: "single-numa-node",
  topologyManagerScope: "pod",
  featureGates: { PodLevelResourceManagers: true },
};

/** The machine has the CPUs 0 to 3 on NUMA node 0, and 4 to 7 on node 1. */
describe("NUMA nodes of a machine over SSH, on cgroup v2", { timeout: patience(600_000) }, () => {
  let cluster: Cluster;
  let pods: Pods;
  let agent: Agent | undefined;

  /** CPUs and NUMA nodes that a container's first process may use, according to the kernel. */
  const allowed = (pod: Pod, container = "main") => {
    const pid = firstProcess(cluster, pod, container);
    return ["Cpus_allowed_list", "Mems_allowed_list"].map((field) => processStatus(cluster, pid, field));
  };
  const limits = (cpu: string, memory: string) => ({ resources: { limits: { cpu, memory } } });
  const sleeping = (more: ContainerDraft = {}) => shell("exec sleep infinity", more);

  before(async () => {
    cluster = await startCluster({ name: "guest-numa", guest: { cpus: 8 } });
    pods = await openPods(cluster);
    agent = await startGraftlet(cluster, { config });
  });
  after(async () => {
    await agent?.[Symbol.asyncDispose]();
    await pods?.[Symbol.asyncDispose]();
    await cluster?.[Symbol.asyncDispose]();
  });

  test("a pod that requests four CPUs gets them and its memory on one NUMA node, and other pods use none of these CPUs", async () => {
    await pods.create("shared", { containers: [sleeping()] });
    await pods.ready("shared");
    await pods.create("database", { containers: [sleeping(limits("4", "256Mi"))] });
    const database = await pods.ready("database");
    assert.deepEqual(allowed(database), ["4-7", "1"]);
    const pid = firstProcess(cluster, database);
    assert.equal(cgroupValue(cluster, pid, ["cpuset.cpus"]), "4-7");
    assert.equal(cgroupValue(cluster, pid, ["cpuset.mems"]), "1");
    await cluster.waitFor("the other pod to leave the CPUs", async () => {
      return allowed(await pods.ready("shared"))[0] === "0-3";
    });
  });

  test("the containers of a pod with pod-level resources share CPUs and memory of one NUMA node", async () => {
    const containers = [sleeping(limits("1", "64Mi")), sleeping({ name: "side" }), sleeping({ name: "other" })];
    const amounts = { cpu: "3", memory: "192Mi" };
    // Without requests, the API server adds up those of the containers: the pod would be Burstable.
    await pods.create("whole", { resources: { requests: amounts, limits: amounts }, containers });
    const pod = await pods.ready("whole");
    assert.deepEqual(
      ["main", "side", "other"].map((name) => allowed(pod, name)),
      [
        ["1", "0"],
        ["2-3", "0"],
        ["2-3", "0"],
      ],
    );
    const { nodeName } = cluster;
    const metrics = await pods.api.text(`/api/v1/nodes/${nodeName}/proxy/metrics`);
    const counted = (kind: string) =>
      new RegExp(
        `^resource_manager_container_assignments\\{resource_name="cpu",assignment_type="${kind}"\\} (\\d+)$`,
        "m",
      )
        .exec(metrics)
        ?.at(1);
    assert.deepEqual(["node_exclusive", "pod_exclusive", "pod_shared"].map(counted), ["1", "1", "2"]);
  });

  test("rejects a pod for which no NUMA node has enough resources", async () => {
    await pods.create("late", { nodeName: cluster.nodeName, containers: [sleeping(limits("1", "64Mi"))] });
    const { status } = await pods.until("late", "to be rejected", (pod) => pod.status?.phase === "Failed");
    assert.equal(status?.reason, "TopologyAffinityError");
  });

  test("a restart of graftlet changes nothing", async () => {
    const both = async () => Promise.all(["database", "whole"].map((name) => pods.ready(name)));
    const before = await both();
    await agent?.kill("SIGKILL");
    agent = await startGraftlet(cluster, { config });
    const now = await both();
    assert.deepEqual(
      now.map((pod) => containerId(pod)),
      before.map((pod) => containerId(pod)),
    );
    assert.deepEqual(
      now.map((pod) => allowed(pod)),
      [
        ["4-7", "1"],
        ["1", "0"],
      ],
    );
  });
});
