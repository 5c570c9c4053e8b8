import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import type { Node, Pod } from "../../src/objects.ts";
import { addImage } from "../cluster/images/build.ts";
import { localVolume, storageClass } from "../harness/claims.ts";
import { startDatabase } from "../harness/database.ts";
import { type Lab, startLab } from "../harness/lab.ts";
import { cgroupValue } from "../harness/pod-machine.ts";
import { containerId, condition, firstProcess, shell, statusOf } from "../harness/pods.ts";
import { switchOff, switchOn } from "../harness/reboot.ts";
import { servedStore } from "../harness/registry.ts";
import { waitFor } from "../harness/wait.ts";

const Mi = 2 ** 20;

let lab: Lab;
before(async () => {
  lab = await startLab("guest-reboot", { config: { memorySwap: { swapBehavior: "LimitedSwap" } } });
});
after(() => lab?.[Symbol.asyncDispose]());

test("a database on a local volume keeps every committed row after a power cut", async () => {
  const { cluster, pods } = lab;
  await addImage("library/postgres", servedStore(cluster.layout), console.error);
  assert.equal((await cluster.runInside(["mkdir", "-p", "/srv/database"])).code, 0);
  await cluster.apply([storageClass, localVolume("database", "/srv/database", cluster.nodeName)]);
  const database = await startDatabase(cluster, pods, { name: "rows", storageClass: storageClass.metadata.name });
  await database.check();
  const before = await database.pod();
  await switchOff(cluster);
  await switchOn(cluster);
  await database.reachable();
  await database.check();
  const now = await database.ready();
  assert.deepEqual([now.metadata.uid, statusOf(now)?.restartCount], [before.metadata.uid, 1]);
  const mounts = (await cluster.runInside(["cat", "/proc/mounts"])).stdout.split("\n");
  const own = mounts.filter((line) => line.includes(`${now.metadata.uid}/volumes/kubernetes.io~local-volume/database`));
  assert.equal(own.length, 1, "it is mounted once");
  await database.stop();
});

test("after a reboot the node is Ready, and its pods run with their data and limits", async () => {
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
  await pods.create("besteffort", {});
  const old = await pods.ready("keeper");
  await pods.ready("besteffort");
  const limits = (pod: Pod) =>
    ["memory.max", "cpu.max", "memory.swap.max"].map((file) =>
      cgroupValue(cluster, firstProcess(cluster, pod), [file]),
    );
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
  await waitFor(
    "the second start to have been noted beside the first",
    () => readFileSync(join(cluster.root, disk), "utf8").trim().split("\n").length === 2,
  );
  assert.deepEqual(limits(next), before);
  const { stdout: weight } = await cluster.runInside([
    "cat",
    "/sys/fs/cgroup/kubepods.slice/kubepods-besteffort.slice/cpu.weight",
  ]);
  assert.equal(weight.trim(), "1");
  await pods.ready("besteffort");
});
