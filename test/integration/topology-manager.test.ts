import assert from "node:assert/strict";
import { availableParallelism } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import type { Node, Pod } from "../../src/objects.ts";
import { type Agent, startGraftlet } from "../harness/agent.ts";
import { type TestPlugin, startTestPlugin } from "../harness/device-plugin.ts";
import { type Lab, startLab } from "../harness/lab.ts";
import { processStatus } from "../harness/pod-machine.ts";
import { type ContainerDraft, type SpecDraft, containerId, firstProcess, shell } from "../harness/pods.ts";
import { clear } from "../harness/pressure.ts";
import { waitFor } from "../harness/wait.ts";

const resource = "test.graftlet.dev/numa";
const last = availableParallelism() - 1;
/** CPU 0 stays with the system; the others can be exclusive. */
const cpus = String(last);
const devices = ["near-0@0", "near-1@0", "far-0@1", "loose-0"];
const exclusive = last === 1 ? "1" : `1-${last}`;
const configOf = (topologyManagerPolicy: string, topologyManagerScope = "container") => ({
  cpuManagerPolicy: "static",
  reservedSystemCPUs: "0",
  topologyManagerPolicy,
  topologyManagerScope,
});

/** The machine of the tests has one NUMA node, 0; devices can say that they belong to it, to another, or to none. */
describe("topology manager", { timeout: 600_000 }, () => {
  let lab: Lab;
  let restarted: Agent | undefined;
  const plugins: TestPlugin[] = [];

  const metric = async (name: string): Promise<number> => {
    const text = await lab.pods.api.text(`/api/v1/nodes/${lab.cluster.nodeName}/proxy/metrics`);
    const line = text.split("\n").find((each) => each.startsWith(`kubelet_${name} `));
    assert.ok(line, `no metric ${name}`);
    return Number(line.split(" ").at(-1));
  };
  const aligned = (kind: string, scope: string) =>
    metric(`container_aligned_compute_resources_${kind}{scope="${scope}",boundary="numa_node"}`);
  const cpusOf = (pod: Pod, name = "main"): string =>
    processStatus(lab.cluster, firstProcess(lab.cluster, pod, name), "Cpus_allowed_list");
  /** A container that asks for CPUs and devices. */
  const asking = (cpu: string | undefined, count: number, more: ContainerDraft = {}): ContainerDraft => {
    const amounts = { memory: "32Mi", [resource]: String(count), ...(cpu !== undefined && { cpu }) };
    return {
      ...shell("echo $DEVICES; exec sleep infinity"),
      resources: { requests: amounts, limits: amounts },
      ...more,
    };
  };
  const here = (...containers: ContainerDraft[]): SpecDraft => ({ containers, nodeName: lab.cluster.nodeName });
  const register = async () => {
    const directory = join(lab.cluster.layout.kubeletRoot, "device-plugins");
    const answer = (ids: readonly string[]) => ({ envs: { DEVICES: ids.toSorted().join(",") } });
    await waitFor("the node to take the plugin in", async () => {
      const plugin = await startTestPlugin({
        directory,
        resource,
        devices,
        socket: `numa-${plugins.length}.sock`,
        answer,
      });
      plugins.push(plugin);
      return plugin.register().then(() => true);
    });
    await lab.cluster.waitFor("the node to have the devices", async () => {
      const { status } = (await lab.cluster.get<Node>("node", lab.cluster.nodeName)) ?? {};
      return status?.allocatable?.[resource] === String(devices.length);
    });
  };
  const restart = async (config: Readonly<Record<string, unknown>>) => {
    await (restarted ?? lab.agent).kill("SIGKILL");
    restarted = await startGraftlet(lab.cluster, { config });
  };
  /** A pod is gone from the API server before its containers have ended. An agent that is killed in between releases their CPUs
   *  only after its first list of pods, as a kubelet. */
  const cpusReleased = () =>
    waitFor("the containers to end", async () => (await metric("cpu_manager_exclusive_cpu_allocation_count")) === 0);
  const rejected = async (name: string, spec: SpecDraft) => {
    await lab.pods.create(name, spec);
    const { status } = await lab.pods.until(name, "to be rejected", (pod) => pod.status?.phase === "Failed");
    return { reason: status?.reason, message: status?.message };
  };
  const affinityError = {
    reason: "TopologyAffinityError",
    message: "Pod was rejected: Resources cannot be allocated with Topology locality",
  };

  before(async () => {
    lab = await startLab("topology-manager", { config: configOf("single-numa-node") });
    await register();
  });
  after(async () => {
    for (const plugin of plugins) await plugin[Symbol.asyncDispose]();
    await restarted?.[Symbol.asyncDispose]();
    await lab?.[Symbol.asyncDispose]();
  });

  test("single-numa-node gives a container CPUs and devices of one NUMA node", async () => {
    const { pods } = lab;
    await pods.create("near", here(asking(cpus, 1)));
    const pod = await pods.ready("near");
    assert.equal(cpusOf(pod), exclusive);
    await pods.logged("near", "near-0\n");
    assert.deepEqual([await aligned("count", "container"), await aligned("failure_count", "container")], [1, 0]);
    assert.equal(await metric("topology_manager_admission_errors_total"), 0);
  });

  test("rejects a pod whose NUMA node has too few resources left, and allocates nothing to it", async () => {
    const { pods } = lab;
    const early = asking(undefined, 1, { name: "early" });
    assert.deepEqual(await rejected("far", here(early, asking(undefined, 1))), affinityError);
    await clear(pods, ["near"]);
    await cpusReleased();
    await pods.create("again", here(asking(cpus, 2)));
    assert.equal(cpusOf(await pods.ready("again")), exclusive);
    await pods.logged("again", "near-0,near-1\n");
    assert.equal(await metric("topology_manager_admission_errors_total"), 1);
    assert.equal(await aligned("failure_count", "container"), 1);
    assert.ok((await metric("topology_manager_admission_requests_total")) >= 3);
    assert.ok((await metric("topology_manager_admission_duration_ms_count")) >= 3);
    await clear(pods, ["far"]);
  });

  test("a restart changes no allocation, even with another policy", async () => {
    const { pods } = lab;
    const before = containerId(await pods.ready("again"));
    await restart(configOf("restricted", "pod"));
    const admitted = async () => (await metric("topology_manager_admission_requests_total").catch(() => 0)) > 0;
    await waitFor("the running pod to be admitted again", admitted);
    const pod = await pods.ready("again");
    assert.deepEqual([containerId(pod), cpusOf(pod)], [before, exclusive]);
    await clear(pods, ["again"]);
    await cpusReleased();
  });

  test("restricted with scope pod aligns the containers of a pod together, and rejects more than the node has", async () => {
    const { pods } = lab;
    await register();
    await pods.create("both", here(asking(undefined, 1), asking(undefined, 1, { name: "side" })));
    await pods.ready("both");
    const logged = (container: string) => pods.logged("both", /^near-\d\n$/, `container=${container}`);
    assert.deepEqual([await logged("main"), await logged("side")].toSorted(), ["near-0\n", "near-1\n"]);
    await clear(pods, ["both"]);
    assert.deepEqual(await rejected("wide", here(asking(undefined, 3))), affinityError);
    await clear(pods, ["wide"]);
  });

  test("policy best-effort admits a pod that policy restricted rejects", async () => {
    const { pods } = lab;
    await restart(configOf("best-effort"));
    await register();
    await pods.create("wide", here(asking(undefined, 3)));
    await pods.ready("wide");
    await pods.logged("wide", "far-0,near-0,near-1\n");
    await clear(pods, ["wide"]);
  });

  test("with its feature gate, containers of a pod with pod-level resources share CPUs that no other pod has", async () => {
    const { pods } = lab;
    await restart({ ...configOf("single-numa-node", "pod"), featureGates: { PodLevelResourceManagers: true } });
    const containers = [shell("exec sleep infinity"), shell("exec sleep infinity", { name: "side" })];
    await pods.create("whole", { resources: { limits: { cpu: cpus, memory: "64Mi" } }, containers });
    const whole = await pods.ready("whole");
    await pods.create("beside", { containers: containers.slice(0, 1) });
    const beside = await pods.ready("beside");
    assert.deepEqual([cpusOf(whole), cpusOf(whole, "side"), cpusOf(beside)], [exclusive, exclusive, "0"]);
    const before = containerId(whole);
    await restart({ ...configOf("single-numa-node", "pod"), featureGates: { PodLevelResourceManagers: true } });
    const admitted = async () => (await metric("topology_manager_admission_requests_total").catch(() => 0)) > 1;
    await waitFor("the running pods to be admitted again", admitted);
    const again = await pods.ready("whole");
    assert.deepEqual([containerId(again), cpusOf(again, "side")], [before, exclusive]);
  });
});
