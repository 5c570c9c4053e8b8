import assert from "node:assert/strict";
import { existsSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { after, before, describe, test } from "node:test";
import type { Node, Pod } from "../../src/objects.ts";
import { quantityValue } from "../../src/pod/quantity.ts";
import { type Agent, startGraftlet } from "../harness/agent.ts";
import { type Lab, startLab } from "../harness/lab.ts";
import { processStatus } from "../harness/pod-machine.ts";
import {
  type ContainerDraft,
  type SpecDraft,
  containerId,
  firstProcess,
  firstProcessFile,
  shell,
  targetPath,
} from "../harness/pods.ts";
import { clear } from "../harness/pressure.ts";
import { patience, waitFor } from "../harness/wait.ts";

const Mi = 2 ** 20;
/** All reserved memory is on the first NUMA node: this, and what evictionHard keeps free. */
const config = {
  memoryManagerPolicy: "Static",
  systemReserved: { memory: "156Mi" },
  reservedMemory: [{ numaNode: 0, limits: { memory: "256Mi" } }],
};

interface SavedNode {
  readonly numberOfAssignments: number;
  readonly memoryMap: {
    readonly memory: { readonly total: number; readonly allocatable: number; readonly free: number };
  };
}

/** The state file, as far as the tests read it. */
interface Saved {
  readonly machineState: Readonly<Record<string, SavedNode>>;
  readonly entries: Readonly<
    Record<
      string,
      Readonly<Record<string, readonly { readonly numaAffinity: readonly number[]; readonly size: number }[]>>
    >
  >;
}

describe("memory manager", { timeout: patience(600_000) }, () => {
  let lab: Lab;
  let restarted: Agent | undefined;

  /** A container of a Guaranteed pod with so much memory. */
  const asking = (mebibytes: number, more: ContainerDraft = {}): ContainerDraft => {
    const amounts = { cpu: "50m", memory: `${mebibytes}Mi` };
    return { ...shell("exec sleep infinity"), resources: { requests: amounts, limits: amounts }, ...more };
  };
  const single = (mebibytes: number, more: SpecDraft = {}): SpecDraft => ({ containers: [asking(mebibytes)], ...more });
  /** NUMA nodes whose memory a container's first process may use, as the kernel tells. */
  const memsOf = (pod: Pod) => processStatus(lab.cluster, firstProcess(lab.cluster, pod), "Mems_allowed_list");
  /** NUMA nodes that the runtime was asked for. */
  const askedOf = (pod: Pod): string | undefined => {
    const bundle = dirname(firstProcessFile(lab.cluster, containerId(pod)));
    const spec: { linux: { resources: { cpu?: { mems?: string } } } } = JSON.parse(
      readFileSync(join(bundle, "config.json"), "utf8"),
    );
    return spec.linux.resources.cpu?.mems;
  };
  const stateFile = () => targetPath(lab.cluster, join(lab.cluster.layout.kubeletRoot, "memory_manager_state"));
  const saved = (): Saved => {
    const state: Saved = JSON.parse(readFileSync(stateFile(), "utf8"));
    return state;
  };
  /** MiB and NUMA nodes of a pod's containers in the state file. */
  const savedOf = ({ metadata: { uid } }: Pod) =>
    Object.fromEntries(
      Object.entries(saved().entries[uid] ?? {}).map(([name, blocks]) => [
        name,
        blocks.map(({ size, numaAffinity }) => `${size / Mi} on ${numaAffinity.join(",")}`).join(),
      ]),
    );
  const freeMemory = () =>
    Object.values(saved().machineState).reduce((sum, { memoryMap }) => sum + memoryMap.memory.free, 0);
  const untilFree = (bytes: number) =>
    waitFor(`${bytes} bytes to be free`, () => freeMemory() === bytes, { timeoutMs: 30_000, everyMs: 100 });
  const stop = () => (restarted ?? lab.agent).kill("SIGKILL");
  const restart = async () => {
    await stop();
    restarted = await startGraftlet(lab.cluster, { config });
  };
  const refuses = async (reason: RegExp, more: Record<string, unknown> = {}) => {
    await using other = await startGraftlet(lab.cluster, { config: { ...config, ...more }, untilReady: false });
    await waitFor("the node not to start", () => reason.test(other.log()), { explain: () => other.log() });
  };
  /** MiB that containers can get on each NUMA node, and on all of them. */
  let nodes: readonly number[];
  let all = 0;
  const allNodes = () => (nodes.length === 1 ? "0" : `0-${nodes.length - 1}`);

  before(async () => {
    lab = await startLab("memory-manager", { config });
    await waitFor("the state to be saved", () => existsSync(stateFile()));
    const tables = Object.values(saved().machineState).map(({ memoryMap }) => memoryMap.memory);
    nodes = tables.map(({ allocatable }) => Math.floor(allocatable / Mi));
    all = tables.reduce((sum, { allocatable }) => sum + allocatable, 0);
  });
  after(async () => {
    await restarted?.[Symbol.asyncDispose]();
    await lab?.[Symbol.asyncDispose]();
  });

  test("reads the target's NUMA nodes and the memory that is reserved on them", async () => {
    const { status } = await lab.pods.api.get<Node>(`/api/v1/nodes/${lab.cluster.nodeName}`);
    const amount = (of: Readonly<Record<string, string>> | undefined) => quantityValue(of?.["memory"] ?? "0");
    const reserved = amount(status?.capacity) - amount(status?.allocatable);
    const tables = Object.values(saved().machineState).map(({ memoryMap }) => memoryMap.memory);
    // A kernel may count memory that was plugged in later for the machine, and for none of its NUMA nodes.
    const total = tables.reduce((sum, table) => sum + table.total, 0);
    assert.equal(all, total - reserved, "what is reserved on all nodes is what the node reserves");
    assert.ok(total <= amount(status?.capacity) && total > amount(status?.capacity) / 2, String(total));
    const [first] = Object.values(saved().machineState);
    assert.equal(first && first.memoryMap.memory.total - first.memoryMap.memory.allocatable, 256 * Mi);
  });

  test("gives each Guaranteed pod memory of one NUMA node; other pods use all nodes", async () => {
    const { pods, cluster } = lab;
    // Nothing else fits beside it on its NUMA node.
    const size = (nodes[0] ?? 0) - 100;
    await pods.create("large", single(size));
    const large = await pods.ready("large");
    await pods.create("small", single(128, { nodeName: cluster.nodeName }));
    await pods.create("shared", { containers: [shell("exec sleep infinity")] });
    const shared = await pods.ready("shared");
    assert.deepEqual([memsOf(large), askedOf(large)], ["0", "0"]);
    assert.deepEqual(savedOf(large), { main: `${size} on 0` });
    assert.deepEqual([memsOf(shared), askedOf(shared)], [allNodes(), undefined]);
    if (nodes.length > 1) {
      const small = await pods.ready("small");
      assert.deepEqual([memsOf(small), askedOf(small)], ["1", "1"]);
    } else await pods.until("small", "to be rejected", (pod) => pod.status?.phase === "Failed");
    await clear(pods, ["large", "small", "shared"]);
    await untilFree(all);
  });

  test("rejects a bound pod that needs more memory than the nodes have, and counts the rejection", async () => {
    const { pods, cluster } = lab;
    await pods.create("greedy", single(all / Mi + 1, { nodeName: cluster.nodeName }));
    const { status } = await pods.until("greedy", "to be rejected", (pod) => pod.status?.phase === "Failed");
    assert.equal(status?.reason, "UnexpectedAdmissionError");
    assert.match(
      status?.message ?? "",
      /Allocate failed due to \[memorymanager\] failed to get the default NUMA affinity, no NUMA nodes with enough memory is available, which is unexpected$/,
    );
    const metrics = await pods.api.text(`/api/v1/nodes/${cluster.nodeName}/proxy/metrics`);
    assert.match(metrics, /^kubelet_memory_manager_pinning_requests_total [2-9]\d*$/m);
    assert.match(metrics, /^kubelet_memory_manager_pinning_errors_total [1-9]\d*$/m);
    await clear(pods, ["greedy"]);
  });

  test("a resize of CPU keeps the NUMA nodes, and memory cannot be resized", async () => {
    const { pods } = lab;
    await pods.create("pinned", single(64));
    const before = memsOf(await pods.ready("pinned"));
    const resize = (cpu: string, memory: string) => {
      const amounts = { cpu, memory };
      const spec = { containers: [{ name: "main", resources: { requests: amounts, limits: amounts } }] };
      return pods.api.patch<Pod>("/api/v1/namespaces/default/pods/pinned/resize", { spec });
    };
    await resize("60m", "64Mi");
    await pods.event("pinned", "ResizeCompleted");
    assert.deepEqual([memsOf(await pods.ready("pinned")), before], ["0", "0"]);
    await resize("60m", "96Mi");
    const infeasible = /Resize is infeasible for Guaranteed Pods alongside Memory Manager policy \\"Static\\"/;
    await pods.event("pinned", "ResizeInfeasible", infeasible);
    await resize("60m", "64Mi");
  });

  test("keeps all allocations across a kill", async () => {
    const { pods } = lab;
    const [before, state] = [containerId(await pods.ready("pinned")), saved()];
    await restart();
    const pod = await pods.ready("pinned");
    assert.deepEqual([containerId(pod), memsOf(pod), saved()], [before, "0", state]);
  });

  test("starts with a truncated state file, and allocates memory to running pods again", async () => {
    const { pods } = lab;
    const state = saved();
    await stop();
    writeFileSync(stateFile(), readFileSync(stateFile(), "utf8").slice(0, 100));
    restarted = await startGraftlet(lab.cluster, { config });
    await waitFor("the state to be whole again", () => readFileSync(stateFile(), "utf8").endsWith("}"));
    await untilFree(all - 64 * Mi);
    const pod = await pods.ready("pinned");
    assert.deepEqual([saved(), memsOf(pod)], [state, "0"]);
  });

  test("allocates to running pods again after the state file was deleted", async () => {
    const { pods } = lab;
    const state = saved();
    await stop();
    rmSync(stateFile());
    restarted = await startGraftlet(lab.cluster, { config });
    await waitFor("the state to be saved", () => existsSync(stateFile()));
    await untilFree(all - 64 * Mi);
    assert.deepEqual(saved(), state);
    await clear(pods, ["pinned"]);
    await untilFree(all);
  });

  test("a container reuses the memory of an init container, and the rest is free once the main container runs", async () => {
    const { pods } = lab;
    await pods.create("staged", {
      initContainers: [asking(192, { name: "first", ...shell("grep Mems_allowed_list /proc/self/status") })],
      containers: [asking(64)],
    });
    const pod = await pods.ready("staged");
    assert.match(await pods.log("staged", "container=first"), /:\s*0\n/);
    assert.deepEqual(savedOf(pod), { first: "", main: "64 on 0" });
    await untilFree(all - 64 * Mi);
    await restart();
    assert.deepEqual([memsOf(await pods.ready("staged")), freeMemory()], ["0", all - 64 * Mi]);
    await clear(pods, ["staged"]);
    await untilFree(all);
  });

  test("keeps the memory of a pod that was admitted but had not started when graftlet was killed", async () => {
    const { pods, cluster } = lab;
    // A pod of all NUMA nodes: no other fits beside it.
    const size = Math.floor(all / Mi) - 64;
    await pods.create("waiting", {
      containers: [asking(size, { image: "registry.invalid/none:1", imagePullPolicy: "Never" })],
    });
    await pods.event("waiting", "ErrImageNeverPull");
    const waiting = await pods.api.get<Pod>("/api/v1/namespaces/default/pods/waiting");
    const expected = { main: `${size} on ${nodes.map((_, id) => id).join(",")}` };
    assert.deepEqual(savedOf(waiting), expected);
    await restart();
    await pods.create("rival", single(128, { nodeName: cluster.nodeName }));
    await pods.until("rival", "to be rejected", (pod) => pod.status?.phase === "Failed");
    assert.deepEqual(savedOf(waiting), expected);
    await clear(pods, ["waiting", "rival"]);
    await untilFree(all);
  });

  test("does not start with other reservations or another policy while a pod has allocated memory", async () => {
    await lab.pods.create("held", single(64));
    await lab.pods.ready("held");
    await stop();
    await refuses(/the total amount \\?"256Mi\\?" of type \\?"memory\\?" is not equal to the value \\?"228Mi\\?"/, {
      systemReserved: { memory: "128Mi" },
    });
    await refuses(/\[memorymanager\] the expected machine state is different from the real one/, {
      systemReserved: { memory: "200Mi" },
      reservedMemory: [{ numaNode: 0, limits: { memory: "300Mi" } }],
    });
    await refuses(/configured policy \\?"None\\?" differs from state checkpoint policy \\?"Static\\?"/, {
      memoryManagerPolicy: "None",
      reservedMemory: [],
    });
  });
});
