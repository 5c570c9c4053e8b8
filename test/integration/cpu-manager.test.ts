import assert from "node:assert/strict";
import { rmSync } from "node:fs";
import { availableParallelism } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import type { Pod } from "../../src/objects.ts";
import { type Agent, startGraftlet } from "../harness/agent.ts";
import { type Lab, startLab } from "../harness/lab.ts";
import { cgroupValue, processStatus } from "../harness/pod-machine.ts";
import { type ContainerDraft, type SpecDraft, containerId, firstProcess, shell, targetPath } from "../harness/pods.ts";
import { clear } from "../harness/pressure.ts";
import { waitFor } from "../harness/wait.ts";

/** CPU 0 stays with the system; the others can be exclusive. */
const config = { cpuManagerPolicy: "static", reservedSystemCPUs: "0", cpuManagerReconcilePeriod: "1s" };
const last = availableParallelism() - 1;
const exclusive = last === 1 ? "1" : `1-${last}`;
const all = `0-${last}`;

describe("exclusive CPUs of the CPU manager", { timeout: 600_000 }, () => {
  let lab: Lab;
  let restarted: Agent | undefined;

  /** CPUs that a container's first process may use, as the kernel tells. */
  const cpusOf = (pod: Pod, name = "main"): string =>
    processStatus(lab.cluster, firstProcess(lab.cluster, pod, name), "Cpus_allowed_list");
  const quotaOf = (pod: Pod, levelsUp = 0) =>
    cgroupValue(lab.cluster, firstProcess(lab.cluster, pod), ["cpu.cfs_quota_us", "cpu.max"], levelsUp).split(" ")[0];
  const untilCpus = async (name: string, cpus: string) => {
    const pod = await lab.pods.ready(name);
    await waitFor(`${name} to have CPUs ${cpus}`, () => cpusOf(pod) === cpus, { timeoutMs: 20_000, everyMs: 100 });
  };
  /** A container of a Guaranteed pod that asks for that many CPUs. */
  const asking = (cpu: number, more: ContainerDraft = {}): ContainerDraft => {
    const amounts = { cpu: String(cpu), memory: "32Mi" };
    return { ...shell("exec sleep infinity"), resources: { requests: amounts, limits: amounts }, ...more };
  };
  const pinned = (more: SpecDraft = {}): SpecDraft => ({ containers: [asking(last)], ...more });
  const restart = async () => {
    await (restarted ?? lab.agent).kill("SIGKILL");
    restarted = await startGraftlet(lab.cluster, { config });
  };

  before(async () => {
    lab = await startLab("cpu-manager", { config });
  });
  after(async () => {
    await restarted?.[Symbol.asyncDispose]();
    await lab?.[Symbol.asyncDispose]();
  });

  test("gives a Guaranteed pod exclusive CPUs, and takes them away from running pods", async () => {
    const { pods } = lab;
    await pods.create("shared", { containers: [shell("exec sleep infinity")] });
    assert.equal(cpusOf(await pods.ready("shared")), all);
    await pods.create("pinned", pinned());
    const pod = await pods.ready("pinned");
    assert.equal(cpusOf(pod), exclusive);
    await untilCpus("shared", "0");
    assert.deepEqual(
      [quotaOf(pod), quotaOf(pod, 1)].filter((quota) => quota !== "-1" && quota !== "max"),
      [],
      "CPU time is not limited",
    );
  });

  test("starts later pods on the shared CPUs", async () => {
    const { pods } = lab;
    await pods.create("late", { containers: [shell("exec sleep infinity")] });
    assert.equal(cpusOf(await pods.ready("late")), "0");
  });

  test("rejects a bound pod that needs more CPUs than are left", async () => {
    const { pods, cluster } = lab;
    await pods.create("greedy", pinned({ nodeName: cluster.nodeName }));
    const { status } = await pods.until("greedy", "to be rejected", (pod) => pod.status?.phase === "Failed");
    assert.equal(status?.reason, "UnexpectedAdmissionError");
    assert.match(
      status?.message ?? "",
      new RegExp(
        `Allocate failed due to not enough cpus available to satisfy request: requested=${last}, available=0, which is unexpected`,
      ),
    );
  });

  test("shows exclusive CPUs in metrics, and refuses to resize their containers", async () => {
    const { pods, cluster } = lab;
    const metrics = await pods.api.text(`/api/v1/nodes/${cluster.nodeName}/proxy/metrics`);
    assert.match(metrics, new RegExp(`^kubelet_cpu_manager_exclusive_cpu_allocation_count ${last}$`, "m"));
    assert.match(metrics, /^kubelet_cpu_manager_shared_pool_size_millicores 0$/m);
    const amounts = { cpu: "500m", memory: "32Mi" };
    const spec = { containers: [{ name: "main", resources: { requests: amounts, limits: amounts } }] };
    await pods.api.patch<Pod>("/api/v1/namespaces/default/pods/pinned/resize", { spec });
    const infeasible = /Resize is infeasible for Guaranteed Pods alongside CPU Manager policy \\"static\\"/;
    await pods.event("pinned", "ResizeInfeasible", infeasible);
    await pods.api.patch<Pod>("/api/v1/namespaces/default/pods/pinned/resize", {
      spec: { containers: [{ name: "main", resources: asking(last).resources }] },
    });
  });

  test("keeps all CPU assignments across a restart", async () => {
    const { pods } = lab;
    const before = containerId(await pods.ready("pinned"));
    await restart();
    const pod = await pods.ready("pinned");
    assert.equal(containerId(pod), before);
    assert.equal(cpusOf(pod), exclusive);
    await untilCpus("shared", "0");
    await untilCpus("late", "0");
  });

  test("when a pod ends, returns its exclusive CPUs to the shared ones", async () => {
    const { pods } = lab;
    await clear(pods, ["pinned", "greedy"]);
    await untilCpus("shared", all);
    await untilCpus("late", all);
  });

  test("keeps the CPUs of a pod that was admitted but had not started when graftlet was killed", async () => {
    const { pods, cluster } = lab;
    await pods.create("waiting", {
      containers: [asking(last, { image: "registry.invalid/none:1", imagePullPolicy: "Never" })],
    });
    await pods.event("waiting", "ErrImageNeverPull");
    await untilCpus("shared", "0");
    await restart();
    await pods.create("rival", pinned({ nodeName: cluster.nodeName }));
    await pods.until("rival", "to be rejected", (pod) => pod.status?.phase === "Failed");
    await untilCpus("shared", "0");
    const { image = "" } = (await pods.ready("shared")).spec.containers[0] ?? {};
    await pods.patch("waiting", { spec: { containers: [{ name: "main", image }] } });
    assert.equal(cpusOf(await pods.ready("waiting")), exclusive);
    await clear(pods, ["waiting", "rival"]);
    await untilCpus("shared", all);
  });

  test("containers reuse the CPUs of an earlier init container", async () => {
    const { pods } = lab;
    await pods.create("staged", {
      initContainers: [asking(last, { name: "first", ...shell("grep Cpus_allowed_list /proc/self/status") })],
      containers: [asking(last)],
    });
    assert.equal(cpusOf(await pods.ready("staged")), exclusive);
    assert.match(await pods.log("staged", "container=first"), new RegExp(`:\\s*${exclusive}\\n`));
    await clear(pods, ["staged"]);
  });

  test("does not start with another policy while a pod has exclusive CPUs, unless the state file is deleted", async () => {
    const { pods } = lab;
    await untilCpus("shared", all);
    await pods.create("held", pinned());
    await pods.ready("held");
    await restarted?.kill("SIGKILL");
    const other = await startGraftlet(lab.cluster, { untilReady: false });
    const refused = /configured policy \\?"none\\?" differs from state checkpoint policy \\?"static\\?"/;
    await waitFor("the policy to be refused", () => refused.test(other.log()), { explain: () => other.log() });
    await other.kill("SIGKILL");
    rmSync(targetPath(lab.cluster, join(lab.cluster.layout.kubeletRoot, "cpu_manager_state")));
    restarted = await startGraftlet(lab.cluster);
    await pods.create("unpinned", { containers: [shell("exec sleep infinity")] });
    assert.equal(cpusOf(await pods.ready("unpinned")), all);
    await clear(pods, ["unpinned"]);
    await restarted.kill("SIGKILL");
  });

  test("starts with another policy once no pod has exclusive CPUs", async () => {
    const { pods, cluster } = lab;
    restarted = await startGraftlet(cluster, { config });
    await clear(pods, ["held"]);
    await untilCpus("shared", all);
    await restarted.kill("SIGKILL");
    restarted = await startGraftlet(cluster);
  });
});
