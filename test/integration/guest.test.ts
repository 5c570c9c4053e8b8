import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import type { Node, Pod } from "../../src/objects.ts";
import { type Lab, startLab } from "../harness/lab.ts";
import { cgroupValue } from "../harness/pod-machine.ts";
import { containerId, condition, firstProcess, shell, statusOf } from "../harness/pods.ts";
import { switchOff, switchOn } from "../harness/reboot.ts";
import { waitFor } from "../harness/wait.ts";

const Mi = 2 ** 20;

let lab: Lab;
before(async () => {
  lab = await startLab("guest", { config: { memorySwap: { swapBehavior: "LimitedSwap" } } });
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

describe("a target with a kernel of its own", () => {
  test("it has cgroup v2 below a systemd, two NUMA nodes, swap, AppArmor and every right", async () => {
    assert.equal(await says("stat", "-f", "-c", "%T", "/sys/fs/cgroup"), "cgroup2fs");
    assert.equal(await says("cat", "/proc/1/comm"), "systemd");
    assert.equal(await says("cat", "/sys/devices/system/node/online"), "0-1");
    assert.match(await says("cat", "/proc/swaps"), /^\/dev\/vdb\s+partition\s+\d+/m);
    assert.equal(await says("cat", "/sys/module/apparmor/parameters/enabled"), "Y");
    assert.match(await says("grep", "CapEff", "/proc/self/status"), /:\s*0*1ffffffffff$/);
    assert.equal(await says("hostname"), lab.cluster.nodeName);
  });

  test("with LimitedSwap a Burstable pod's swap is the part of it that its request is of the memory, others have none", async () => {
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

  test("after a reboot the node is Ready again, its pods run again with their data and their limits", async () => {
    const { pods, cluster } = lab;
    const bootId = async () => {
      const node = await pods.api.get<Node>(`/api/v1/nodes/${cluster.nodeName}`);
      return node.status?.nodeInfo?.bootID;
    };
    await pods.create("keeper", {
      volumes: [{ name: "disk", emptyDir: {} }],
      containers: [
        shell("date >> /disk/starts; exec sleep 3600", {
          volumeMounts: [{ name: "disk", mountPath: "/disk" }],
          resources: { limits: { memory: "64Mi", cpu: "200m" } },
        }),
      ],
    });
    const old = await pods.ready("keeper");
    const limits = (pod: Pod) => ["memory.max", "cpu.max", "memory.swap.max"].map((file) => limit(pod, file));
    const [before, first] = [limits(old), await bootId()];
    assert.deepEqual(before, [String(64 * Mi), "20000 100000", "0"]);
    await switchOff(cluster);
    const { bootId: second } = await switchOn(cluster);
    assert.notEqual(second, first);
    await waitFor("the node to show its new boot", async () => (await bootId()) === second);
    const next = await pods.until(
      "keeper",
      "to be Ready again",
      (pod) => condition(pod, "Ready")?.status === "True" && containerId(pod) !== containerId(old),
    );
    assert.equal(statusOf(next)?.restartCount, 1);
    assert.equal(next.metadata.uid, old.metadata.uid);
    const starts = await pods.api.text(`/api/v1/nodes/${cluster.nodeName}/proxy/healthz`);
    assert.equal(starts, "ok");
    const disk = join(
      cluster.layout.kubeletRoot,
      "pods",
      old.metadata.uid,
      "volumes/kubernetes.io~empty-dir/disk/starts",
    );
    assert.equal(readFileSync(join(cluster.root, disk), "utf8").trim().split("\n").length, 2);
    assert.deepEqual(limits(next), before);
    const shares = await says("cat", "/sys/fs/cgroup/kubepods.slice/kubepods-besteffort.slice/cpu.weight");
    assert.equal(shares, "1");
    await pods.ready("besteffort");
  });
});
