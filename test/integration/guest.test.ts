import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import type { Pod } from "../../src/objects.ts";
import { type Lab, startLab } from "../harness/lab.ts";
import { cgroupValue } from "../harness/pod-machine.ts";
import { firstProcess, shell } from "../harness/pods.ts";

const Mi = 2 ** 20;

let lab: Lab;
before(async () => {
  lab = await startLab("guest", {
    config: {
      memorySwap: { swapBehavior: "LimitedSwap" },
      featureGates: { MemoryQoS: true },
      memoryReservationPolicy: "TieredReservation",
      protectKernelDefaults: false,
      makeIPTablesUtilChains: true,
    },
  });
});
after(() => lab?.[Symbol.asyncDispose]());

/** What a command says that must succeed in the guest. */
async function says(...argv: readonly string[]): Promise<string> {
  const { code, stdout, stderr } = await lab.cluster.runInside(argv);
  assert.equal(code, 0, `${argv.join(" ")}: ${stderr}`);
  return stdout.trim();
}

/** A limit of a container, which the kernel counts in pages. */
const limit = (pod: Pod, file: string) => cgroupValue(lab.cluster, firstProcess(lab.cluster, pod), [file]);
const inPages = (bytes: number) => String(Math.floor(bytes / 4096) * 4096);

describe("a target with its own kernel", () => {
  test("the target has cgroup v2 with systemd, two NUMA nodes, swap, AppArmor and full privileges", async () => {
    assert.equal(await says("stat", "-f", "-c", "%T", "/sys/fs/cgroup"), "cgroup2fs");
    assert.equal(await says("cat", "/proc/1/comm"), "systemd");
    assert.equal(await says("cat", "/sys/devices/system/node/online"), "0-1");
    assert.match(await says("cat", "/proc/swaps"), /^\/dev\/vdb\s+partition\s+\d+/m);
    assert.equal(await says("cat", "/sys/module/apparmor/parameters/enabled"), "Y");
    assert.match(await says("grep", "CapEff", "/proc/self/status"), /:\s*0*1ffffffffff$/);
    assert.equal(await says("hostname"), lab.cluster.nodeName);
  });

  test("gets a kubelet's kernel settings and iptables chains if the node's configuration requests them", async () => {
    assert.equal(await says("sysctl", "-n", "vm.overcommit_memory"), "1");
    assert.equal(await says("sysctl", "-n", "kernel.panic"), "10");
    await lab.cluster.waitFor("the chains", async () =>
      /^-A INPUT -j KUBE-FIREWALL$/m.test(await says("iptables", "-w", "-S", "INPUT")),
    );
    assert.match(await says("iptables", "-w", "-t", "mangle", "-S"), /^-N KUBE-IPTABLES-HINT$/m);
  });

  test("LimitedSwap gives Burstable pods swap in proportion to their memory requests, and no swap to other pods", async () => {
    const { pods } = lab;
    const asking = (resources: object) => ({ containers: [shell("exec sleep 3600", { resources })] });
    await pods.create("burstable", asking({ requests: { memory: "128Mi" } }));
    await pods.create("guaranteed", asking({ limits: { memory: "64Mi", cpu: "100m" } }));
    await pods.create("besteffort", asking({}));
    const [burstable, ...others] = await Promise.all(["burstable", "guaranteed", "besteffort"].map(pods.ready));
    const facts = await says("cat", "/proc/meminfo");
    const bytes = (name: string) => Number(new RegExp(`^${name}:\\s+(\\d+) kB`, "m").exec(facts)?.[1]) * 1024;
    assert.ok(burstable && bytes("SwapTotal") > 256 * Mi);
    const share = Math.trunc(((128 * Mi) / bytes("MemTotal")) * bytes("SwapTotal"));
    assert.equal(limit(burstable, "memory.swap.max"), inPages(share));
    for (const pod of others) assert.equal(limit(pod, "memory.swap.max"), "0", pod.metadata.name);
  });

  test("does not resize the memory of a container with swap, and reports why", async () => {
    const { pods } = lab;
    const before = limit(await pods.ready("burstable"), "memory.swap.max");
    const { name } = (await pods.ready("burstable")).spec.containers[0] ?? assert.fail();
    const spec = { containers: [{ name, resources: { requests: { memory: "256Mi" } } }] };
    await pods.api.patch("/api/v1/namespaces/default/pods/burstable/resize", { spec });
    await pods.event(
      "burstable",
      "ResizeInfeasible",
      /"error":"In-place resize of containers with swap is not supported\."/,
    );
    const held = await pods.until("burstable", "to show it", ({ status }) =>
      (status?.conditions ?? []).some(({ type, reason }) => type === "PodResizePending" && reason === "Infeasible"),
    );
    assert.equal(held.status?.containerStatuses?.[0]?.allocatedResources?.["memory"], "128Mi");
    assert.equal(limit(held, "memory.swap.max"), before);
  });

  test("MemoryQoS protects requested memory, and throttles containers before they reach their limits", async () => {
    const { pods, cluster } = lab;
    const requests = { memory: "64Mi" };
    await pods.create("limited", {
      containers: [shell("exec sleep 3600", { resources: { requests, limits: { memory: "128Mi" } } })],
    });
    const limited = await pods.ready("limited");
    assert.equal(limit(limited, "memory.high"), inPages((64 + 64 * 0.9) * Mi));
    const burstable = firstProcess(cluster, limited);
    // Of the container, of its pod, of all Burstable pods.
    const low = [0, 1, 2].map((up) => Number(cgroupValue(cluster, burstable, ["memory.low"], up)) / Mi);
    assert.deepEqual(low, [64, 64, 128 + 64]);
    const guaranteed = firstProcess(cluster, await pods.ready("guaranteed"));
    const min = [0, 1, 2].map((up) => Number(cgroupValue(cluster, guaranteed, ["memory.min"], up)) / Mi);
    assert.deepEqual(min, [64, 64, 64 + 128 + 64]);
    assert.equal(cgroupValue(cluster, guaranteed, ["memory.high"]), "max");
  });
});
