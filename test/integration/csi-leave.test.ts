import assert from "node:assert/strict";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { type Agent, graftletProgram, startGraftlet } from "../harness/agent.ts";
import { claim, persistentVolume, storageClass } from "../harness/claims.ts";
import { type Cluster, startCluster } from "../harness/cluster.ts";
import { converse } from "../harness/conversation.ts";
import { csi, type CsiDriver, startCsiDriver } from "../harness/csi.ts";
import { startTestDriver } from "../harness/csi-driver.ts";
import { mount } from "../harness/manifests.ts";
import { mountsOf } from "../harness/pod-machine.ts";
import { images, openPods, type Pods, shell } from "../harness/pods.ts";
import { providerUnderTest } from "../harness/runtime-daemon.ts";
import { kubectlTimeout, patience } from "../harness/wait.ts";
import { isGuest } from "../matrix.ts";

// A node with a storage driver in a DaemonSet's pod is drained, leaves, and is removed after a crash.

describe("a node with a storage driver", { timeout: patience(800_000) }, () => {
  let cluster: Cluster;
  let agent: Agent;
  let pods: Pods;
  let driver: CsiDriver;
  const owned = new AsyncDisposableStack();
  before(async () => {
    cluster = owned.use(await startCluster({ name: "csi-leave" }));
    agent = await startGraftlet(cluster);
    pods = owned.use(await openPods(cluster));
    driver = await startCsiDriver(cluster, { args: ["--enable-topology=false"] });
  });
  after(async () => {
    await agent?.[Symbol.asyncDispose]();
    await owned.disposeAsync();
  });

  const root = () => cluster.layout.kubeletRoot;
  const kubectl = (...args: readonly string[]) => cluster.mustKubectl(args, { timeoutMs: 120_000 });
  const csiMounts = () => mountsOf(cluster).filter((path) => /kubernetes\.io[~/]csi/.test(path));
  const using = (claimName: string) => ({
    volumes: [{ name: "v", persistentVolumeClaim: { claimName } }],
    containers: [shell("echo row >> /v/table; sleep 3600", { volumeMounts: [mount("v")] })],
  });

  /** Content of a volume, where the driver keeps it. */
  async function rows(handle: string): Promise<string> {
    return readFileSync(join(cluster.root, driver.data, handle, "table"), "utf8");
  }

  async function handleOf(name: string): Promise<string> {
    await kubectl("wait", "--for=jsonpath={.status.phase}=Bound", `pvc/${name}`, kubectlTimeout(60));
    const volume = await kubectl("get", "pvc", name, "-o=jsonpath={.spec.volumeName}");
    return kubectl("get", "pv", volume, "-o=jsonpath={.spec.csi.volumeHandle}");
  }

  /** The node's own command line, with another verb. */
  function command(verb: string, leftOut = /^$/): readonly string[] {
    const words = readFileSync(`/proc/${agent.pid}/cmdline`, "utf8").split("\0").filter(Boolean);
    const at = words.indexOf(graftletProgram()) + 1;
    return [...words.slice(0, at), verb, ...words.slice(at).filter((word) => !leftOut.test(word)), "--yes"];
  }

  /** Expects nothing of volumes on the machine, and no CSINode. */
  async function nothingIsLeft(): Promise<void> {
    assert.deepEqual(csiMounts(), []);
    for (const path of ["plugins/kubernetes.io", "pods"])
      assert.equal(existsSync(join(cluster.root, root(), path)), false, path);
  }

  test("kubectl drain terminates the claim's pod, unstages its volume, and leaves the driver running", async () => {
    await cluster.apply([claim("drained", undefined, { storageClassName: csi.storageClass })]);
    const handle = await handleOf("drained");
    await pods.create("drained", { ...using("drained"), terminationGracePeriodSeconds: 1 });
    await pods.ready("drained");
    assert.equal(csiMounts().length > 0, true);
    await kubectl("drain", cluster.nodeName, "--ignore-daemonsets", "--force", kubectlTimeout(90));
    const calls = (await driver.calls()).filter(
      ({ request, error }) => request["volume_id"] === handle && error === "",
    );
    assert.deepEqual(
      calls.map(({ method }) => method).filter((method) => method.startsWith("NodeUn")),
      ["NodeUnpublishVolume", "NodeUnstageVolume"],
    );
    assert.deepEqual(csiMounts(), []);
    assert.equal(await rows(handle), "row\n");
    await kubectl("uncordon", cluster.nodeName);
  });

  test("graftlet leave unmounts volumes of DaemonSet pods while the driver still runs, and deletes the CSINode", async () => {
    const block = { volumeMode: "Block", resources: { requests: { storage: "8Mi" } } };
    await cluster.apply([
      claim("kept", undefined, { storageClassName: csi.storageClass }),
      claim("raw", undefined, { storageClassName: csi.storageClass, ...block }),
    ]);
    const [handle = "", raw = ""] = await Promise.all(["kept", "raw"].map(handleOf));
    const labels = { app: "user" };
    const own = using("kept");
    const volumes = [...own.volumes, { name: "raw", persistentVolumeClaim: { claimName: "raw" } }];
    const volumeDevices = [{ name: "raw", devicePath: "/dev/raw" }];
    const containers = own.containers.map((one) => ({ name: "main", image: images.busybox, volumeDevices, ...one }));
    await cluster.apply({
      apiVersion: "apps/v1",
      kind: "DaemonSet",
      metadata: { name: "user", namespace: "default" },
      spec: {
        selector: { matchLabels: labels },
        template: { metadata: { labels }, spec: { volumes, containers, terminationGracePeriodSeconds: 1 } },
      },
    });
    await kubectl("rollout", "status", "daemonset/user", kubectlTimeout(90));
    await cluster.waitFor("its row", async () => (await rows(handle)) === "row\n");
    const argv = command("leave", /^--(bootstrap-)?kubeconfig=/);
    await using leaving = converse(
      cluster.spawnAtAgent([...argv, `--kubeconfig=${cluster.adminKubeconfig}`, kubectlTimeout(60)]),
    );
    await leaving.says("stop this node's graftlet now", 90_000);
    assert.equal(await agent.stop(), true);
    assert.equal(await leaving.ended(120_000), 0, leaving.stdout());
    const said = leaving.stdout();
    assert.match(said, /: removed CSI volumes of pod default\/user-/);
    assert.match(said, /: removed staged CSI volumes\n[^]*removed container hostpath of pod /);
    assert.doesNotMatch(said, /not released by the CSI driver/);
    await nothingIsLeft();
    assert.doesNotMatch(await cluster.mustRunInside(["losetup", "--all"]), new RegExp(raw));
    assert.equal(await rows(handle), "row\n");
    await cluster.waitFor("CSINode to go", async () => (await kubectl("get", "csinodes", "-o=name")) === "");
    assert.equal(await kubectl("get", "volumeattachments", "-o=name"), "");
    await kubectl("delete", "daemonset", "user");
    await kubectl("delete", "daemonset", csi.daemonSet, "--namespace", csi.namespace);
  });

  // Its driver is in the test's own process, whose sockets a machine with a kernel of its own does not have.
  if (!isGuest(providerUnderTest()))
    test("after a crash, graftlet remove without a running driver names the driver, unmounts its volumes and keeps their data", async () => {
      const name = "gone.csi.graftlet.dev";
      const disks = join(cluster.layout.dir, "disks");
      agent = await startGraftlet(cluster);
      const run = (argv: readonly string[]) => cluster.mustRunInside(argv);
      await using gone = await startTestDriver({ name, rootDir: root(), disks, run });
      await cluster.apply([
        storageClass,
        { apiVersion: "storage.k8s.io/v1", kind: "CSIDriver", metadata: { name }, spec: { attachRequired: false } },
        persistentVolume("gone", { csi: { driver: name, volumeHandle: "handle-gone" } }),
        claim("gone", "gone"),
      ]);
      await pods.create("gone", using("gone"));
      await pods.ready("gone");
      await cluster.waitFor("its row", () => existsSync(join(cluster.root, disks, "handle-gone/table")));
      const argv = command("remove");
      await agent.kill("SIGKILL");
      gone.stop();
      const { code, stdout, stderr } = await cluster.runAtAgent(argv, { timeoutMs: 120_000 });
      assert.equal(code, 0, stderr);
      const sentences = stdout.split("\n").filter((line) => line.includes("not released by the CSI driver"));
      assert.deepEqual(sentences, [
        `unmounted, but not released by the CSI driver: volume gone of pod default/gone (its data is untouched): the driver ${name} is not running on the target`,
      ]);
      await nothingIsLeft();
      assert.deepEqual(readdirSync(join(cluster.root, disks, "handle-gone")), ["table"]);
    });
});
