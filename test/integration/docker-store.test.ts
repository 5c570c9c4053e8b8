import assert from "node:assert/strict";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { type Agent, startGraftlet } from "../harness/agent.ts";
import { type Cluster, startCluster } from "../harness/cluster.ts";
import { containerdArgv, writeContainerdConfig } from "../harness/containerd.ts";
import { dockerEngine } from "../harness/docker-engine.ts";
import { openPods, type Pods, shell } from "../harness/pods.ts";
import { untilCondition } from "../harness/pressure.ts";

interface FileSystem {
  readonly capacityBytes?: number;
}

/** @see https://pkg.go.dev/k8s.io/kubelet/pkg/apis/stats/v1alpha1 */
interface Summary {
  readonly node: { readonly fs: FileSystem; readonly runtime: { readonly imageFs: FileSystem } };
  readonly pods: readonly { readonly containers: readonly { readonly rootfs: FileSystem }[] }[];
}

// As packages install it: images and writable layers are in the directory of the machine's containerd, not in Docker's data-root.
describe("a Docker Engine that uses the machine's containerd, whose directory is another disk", {
  timeout: 300_000,
}, () => {
  let cluster: Cluster;
  let agent: Agent;
  let pods: Pods;
  /** containerd's directory, and the capacity of its file system. */
  let directory: string;
  let capacity: number;

  before(async () => {
    cluster = await startCluster({ name: "docker-store" });
    const { layout, tools } = cluster;
    await cluster.killRuntime();
    writeContainerdConfig(layout, "cgroupfs");
    directory = join(layout.containerd, "root");
    mkdirSync(directory, { recursive: true });
    const disk = join(layout.dir, "disk");
    const make = `truncate -s 256M ${disk} && mkfs.ext4 -q -m 0 ${disk} && mount -o loop ${disk} ${directory}`;
    await cluster.mustRunInside(["sh", "-c", make]);
    capacity = Number(await cluster.mustRunInside(["sh", "-c", `echo $(($(stat -f -c '%b * %S' ${directory})))`]));
    await cluster.startDaemon("containerd", containerdArgv(tools, layout));
    await cluster.waitFor("containerd to listen", async () => {
      const { code } = await cluster.runInside([tools.path("ctr"), "--address", layout.containerdSocket, "version"]);
      return code === 0;
    });
    await dockerEngine(cluster).start({ containerd: layout.containerdSocket });
    pods = await openPods(cluster);
    agent = await startGraftlet(cluster, { config: { evictionHard: { "imagefs.available": "64Mi" } } });
    await pods.create("writer", { containers: [shell("exec sleep infinity")] });
    await pods.ready("writer");
  });
  after(async () => {
    await agent?.[Symbol.asyncDispose]();
    await pods?.[Symbol.asyncDispose]();
    await cluster?.[Symbol.asyncDispose]();
  });

  test("statistics name the capacity of that disk for images and writable layers", async () => {
    const path = `/api/v1/nodes/${cluster.nodeName}/proxy/stats/summary`;
    const capacities = async () => {
      const { node, pods: all } = JSON.parse(await cluster.mustKubectl(["get", "--raw", path])) as Summary;
      const layer = all[0]?.containers[0]?.rootfs.capacityBytes;
      return { node: node.fs.capacityBytes, images: node.runtime.imageFs.capacityBytes, layer };
    };
    await cluster.waitFor(
      "the disk's capacity",
      async () => {
        const { images, layer } = await capacities();
        return images === capacity && layer === capacity;
      },
      { explain: async () => `${JSON.stringify(await capacities())}, not ${capacity}` },
    );
    assert.notEqual((await capacities()).node, capacity);
  });

  test("the node is under disk pressure when that disk is full", async () => {
    await untilCondition(cluster, "DiskPressure", "False");
    const fill = `fallocate -l $(($(stat -f -c '%a * %S * 9 / 10' ${directory}))) ${directory}/ballast`;
    await cluster.mustRunInside(["sh", "-c", fill]);
    await untilCondition(cluster, "DiskPressure", "True");
  });
});
