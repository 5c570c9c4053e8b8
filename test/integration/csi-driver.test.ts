import assert from "node:assert/strict";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { startGraftlet, startKubelet } from "../harness/agent.ts";
import { claim } from "../harness/claims.ts";
import { type Cluster, startCluster } from "../harness/cluster.ts";
import { csi, type CsiDriver, startCsiDriver } from "../harness/csi.ts";
import { mount } from "../harness/manifests.ts";
import { mountsOf } from "../harness/pod-machine.ts";
import { openPods, type Pods, shell } from "../harness/pods.ts";

// The driver that CSI is tested with, in pods, with others' programs about it: what a test can expect of them.

const ofClass = (more: object = {}) => ({ storageClassName: csi.storageClass, ...more });

/** Waits until a claim is bound. @returns the volume's name and handle. */
async function bound(cluster: Cluster, name: string): Promise<{ readonly volume: string; readonly handle: string }> {
  await cluster.mustKubectl(["wait", "--for=jsonpath={.status.phase}=Bound", `pvc/${name}`, "--timeout=60s"]);
  const volume = await cluster.mustKubectl(["get", "pvc", name, "-o=jsonpath={.spec.volumeName}"]);
  const handle = await cluster.mustKubectl(["get", "pv", volume, "-o=jsonpath={.spec.csi.volumeHandle}"]);
  return { volume, handle };
}

/** Deletes a claim, and waits until its volume is gone too. */
async function released(cluster: Cluster, name: string, volume: string): Promise<void> {
  await cluster.mustKubectl(["delete", "pvc", name]);
  await cluster.mustKubectl(["wait", "--for=delete", `pv/${volume}`, "--timeout=60s"]);
}

describe("the tests' CSI driver on a graftlet node", () => {
  let cluster: Cluster;
  let driver: CsiDriver;
  const owned = new AsyncDisposableStack();
  before(async () => {
    cluster = owned.use(await startCluster({ name: "csi-driver" }));
    owned.use(await startGraftlet(cluster));
    driver = await startCsiDriver(cluster, { args: ["--enable-topology=false"] });
  });
  after(() => owned.disposeAsync());

  test("provisions a volume for a claim and deletes it with the claim, even after the driver's pod was replaced", async () => {
    await cluster.apply([claim("made", undefined, ofClass())]);
    const { volume, handle } = await bound(cluster, "made");
    const folder = join(cluster.root, driver.data);
    assert.deepEqual(readdirSync(folder).sort(), [handle, "state.json"].sort());
    const called = await driver.calls();
    assert.ok(called.some(({ method, error }) => method === "CreateVolume" && error === ""));
    const pods = ["-n", csi.namespace, "-l", `app=${csi.daemonSet}`];
    await cluster.mustKubectl(["delete", "pod", ...pods, "--timeout=60s"]);
    await cluster.mustKubectl([
      "rollout",
      "status",
      `daemonset/${csi.daemonSet}`,
      "-n",
      csi.namespace,
      "--timeout=60s",
    ]);
    await released(cluster, "made", volume);
    assert.deepEqual(readdirSync(folder), ["state.json"]);
  });

  test("the registrar's socket waits for a kubelet to connect", async () => {
    const socket = `${csi.driver}-reg.sock`;
    await cluster.waitFor("the socket", () =>
      existsSync(join(cluster.root, cluster.layout.kubeletRoot, "plugins_registry", socket)),
    );
  });
});

describe("the tests' CSI driver on a node of the real kubelet", () => {
  let cluster: Cluster;
  let driver: CsiDriver;
  let pods: Pods;
  const owned = new AsyncDisposableStack();
  before(async () => {
    cluster = owned.use(await startCluster({ name: "csi-kubelet" }));
    owned.use(await startKubelet(cluster));
    pods = owned.use(await openPods(cluster));
    driver = await startCsiDriver(cluster, {
      sidecars: ["csi-provisioner", "csi-attacher", "csi-resizer"],
      args: ["--enable-attach", "--check-volume-lifecycle"],
      spec: { attachRequired: true },
    });
  });
  after(() => owned.disposeAsync());

  const claimed = (claimName: string) => [{ name: "v", persistentVolumeClaim: { claimName } }];

  async function removed(name: string): Promise<void> {
    const gone = pods.gone(name);
    await pods.remove(name, 1);
    await gone;
  }

  /** Methods that were called about a volume, in order, each named once. */
  async function methodsOf(handle: string): Promise<readonly string[]> {
    const calls = await driver.calls();
    const about = calls.filter(({ request, error }) => request["volume_id"] === handle && error === "");
    return [...new Set(about.map(({ method }) => method))];
  }

  test("attaches, mounts, expands and unmounts a claim", async () => {
    await cluster.apply([claim("folder", undefined, ofClass())]);
    const { volume, handle } = await bound(cluster, "folder");
    await pods.create("folder", {
      volumes: claimed("folder"),
      securityContext: { fsGroup: 2000 },
      containers: [
        shell("echo row > /v/table; stat -c %g /v; sleep 3600", {
          volumeMounts: [mount("v")],
          securityContext: { runAsUser: 1000 },
        }),
      ],
    });
    await pods.ready("folder");
    await pods.logged("folder", "2000\n");
    assert.equal(readFileSync(join(cluster.root, driver.data, handle, "table"), "utf8"), "row\n");
    await cluster.mustKubectl(["patch", "pvc", "folder", '-p={"spec":{"resources":{"requests":{"storage":"2Gi"}}}}']);
    const grown = "--for=jsonpath={.status.capacity.storage}=2Gi";
    await cluster.mustKubectl(["wait", grown, "pvc/folder", "--timeout=120s"], { timeoutMs: 130_000 });
    await removed("folder");
    await released(cluster, "folder", volume);
    assert.equal(existsSync(join(cluster.root, driver.data, handle)), false);
    const methods = await methodsOf(handle);
    for (const method of [
      "ControllerPublishVolume",
      "NodeStageVolume",
      "NodePublishVolume",
      "ControllerExpandVolume",
      "NodeExpandVolume",
      "NodeUnpublishVolume",
      "NodeUnstageVolume",
      "ControllerUnpublishVolume",
      "DeleteVolume",
    ])
      assert.ok(methods.includes(method), `${method} is not among ${methods.join(" ")}`);
  });

  test("a claim with volumeMode Block appears as a device of the claim's size", async () => {
    await cluster.apply([
      claim("device", undefined, ofClass({ volumeMode: "Block", resources: { requests: { storage: "8Mi" } } })),
    ]);
    const { volume, handle } = await bound(cluster, "device");
    await pods.create("device", {
      volumes: claimed("device"),
      containers: [
        shell("blockdev --getsize64 /dev/v; echo row | dd of=/dev/v conv=notrunc 2>/dev/null; sync; sleep 3600", {
          volumeDevices: [{ name: "v", devicePath: "/dev/v" }],
        }),
      ],
    });
    await pods.ready("device");
    await pods.logged("device", `${8 << 20}\n`);
    await cluster.waitFor("what was written", () =>
      readFileSync(join(cluster.root, driver.data, handle))
        .subarray(0, 4)
        .equals(Buffer.from("row\n")),
    );
    await removed("device");
    await released(cluster, "device", volume);
    assert.doesNotMatch(await cluster.mustRunInside(["losetup", "--all"]), new RegExp(handle));
  });

  test("an inline volume lives as long as its pod", async () => {
    await pods.create("inline", {
      volumes: [{ name: "v", csi: { driver: csi.driver, volumeAttributes: { size: "1Mi" } } }],
      containers: [shell("echo row > /v/table; sleep 3600", { volumeMounts: [mount("v")] })],
    });
    await pods.ready("inline");
    const folder = join(cluster.root, driver.data);
    const [made = ""] = readdirSync(folder).filter((name) => name.startsWith("csi-"));
    await cluster.waitFor("the row", () => readFileSync(join(folder, made, "table"), "utf8") === "row\n");
    await removed("inline");
    await cluster.waitFor("its end", () => !existsSync(join(folder, made)));
  });

  test("leaves no mount behind", async () => {
    await cluster.waitFor("the last mounts to go", () =>
      mountsOf(cluster).every((path) => !path.includes("kubernetes.io~csi")),
    );
  });
});
