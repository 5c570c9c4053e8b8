import assert from "node:assert/strict";
import { existsSync, readFileSync, rmSync } from "node:fs";
import { type Server, createServer } from "node:net";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import type { CSINode, Pod } from "../../src/objects.ts";
import { type Agent, startGraftlet } from "../harness/agent.ts";
import { claim, persistentVolume, storageClass } from "../harness/claims.ts";
import { type Cluster, startCluster } from "../harness/cluster.ts";
import { startTestDriver, type TestDriver, type TestDriverOptions } from "../harness/csi-driver.ts";
import { mount } from "../harness/manifests.ts";
import { mountsOf } from "../harness/pod-machine.ts";
import { openPods, type Pods, shell, type SpecDraft } from "../harness/pods.ts";
import { parseExposition } from "../unit/metrics/exposition.ts";

// Storage drivers that do not do as they should, beside one that does.

const good = "good.csi.graftlet.dev";
const bad = "bad.csi.graftlet.dev";

let cluster: Cluster;
let agent: Agent;
let pods: Pods;
let faulty: TestDriver;
const owned = new AsyncDisposableStack();
before(async () => {
  cluster = owned.use(await startCluster({ name: "csi-faults" }));
  agent = owned.use(await startGraftlet(cluster, { args: ["-v=6"], config: { syncFrequency: "5s" } }));
  pods = owned.use(await openPods(cluster));
  await cluster.mustRunInside(["mkdir", "-p", disks()]);
  const spec = { attachRequired: false };
  const objects = [good, bad].map((name) => ({
    apiVersion: "storage.k8s.io/v1",
    kind: "CSIDriver",
    metadata: { name },
    spec,
  }));
  await cluster.apply([storageClass, ...objects]);
  owned.use(await startDriver(good));
  faulty = await startDriver(bad);
  await shown(good, bad);
});
after(async () => {
  await faulty?.[Symbol.asyncDispose]();
  await owned.disposeAsync();
});

const disks = () => join(cluster.layout.dir, "disks");
const root = () => cluster.layout.kubeletRoot;

const startDriver = (name: string, more: Partial<TestDriverOptions> = {}) =>
  startTestDriver({ name, rootDir: root(), disks: disks(), run: (argv) => cluster.mustRunInside(argv), ...more });

/** Waits until the node's CSINode has these drivers and no others. */
const shown = (...names: readonly string[]) =>
  cluster.waitFor(`the drivers ${names.join(" ")}`, async () => {
    const text = await cluster.mustKubectl(["get", "csinode", cluster.nodeName, "-o", "json"]);
    const { spec } = JSON.parse(text) as CSINode;
    return (
      (spec.drivers ?? [])
        .map(({ name }) => name)
        .sort()
        .join() === names.toSorted().join()
    );
  });

/** A volume of a driver and the claim that has it, of one name. */
const volumeOf = (name: string, driver: string): readonly object[] => [
  persistentVolume(name, { csi: { driver, volumeHandle: `handle-${name}` } }),
  claim(name, name),
];

const using = (name: string, script = "sleep 3600"): SpecDraft => ({
  volumes: [{ name: "v", persistentVolumeClaim: { claimName: name } }],
  containers: [shell(script, { volumeMounts: [mount("v", { mountPath: "/v" })] })],
});

const requests = (driver: TestDriver, method: string, volume: string) =>
  driver.calls.filter((call) => call.method === method && call.request.volumeId === `handle-${volume}`);

async function removed(name: string): Promise<void> {
  const gone = pods.gone(name);
  await pods.remove(name, 1);
  await gone;
}

/** A pod of the sound driver's comes and goes, whatever the others do. */
async function othersGoOn(name: string): Promise<void> {
  await cluster.apply(volumeOf(name, good));
  await pods.create(name, using(name));
  await pods.ready(name);
  await removed(name);
}

const nothingLeft = () =>
  cluster.waitFor("nothing to be left", () => !mountsOf(cluster).some((path) => /kubernetes\.io[~/]csi/.test(path)));

describe("faults of CSI drivers", () => {
  test("a slow response delays only the pod that waits for it, whose volume is not published twice", async () => {
    faulty.delay("NodePublishVolume", 6_000);
    await cluster.apply(volumeOf("late", bad));
    const began = Date.now();
    await pods.create("late", using("late", "echo kept > /v/file; sleep 3600"));
    await othersGoOn("beside");
    assert.equal(requests(faulty, "NodePublishVolume", "late").length, 1);
    await pods.ready("late");
    assert.ok(Date.now() - began >= 6_000);
    assert.equal(requests(faulty, "NodePublishVolume", "late").length, 1);
    faulty.delay("NodePublishVolume", 0);
  });

  test("a terminating pod waits for a missing driver and keeps its data while other pods keep running", async () => {
    faulty.stop();
    await shown(good);
    await cluster.mustKubectl(["delete", "pod", "late", "--grace-period=1", "--wait=false"]);
    const away = `driver name ${bad} not found in the list of registered CSI drivers`;
    await cluster.waitFor("a try without the driver", () => agent.log().includes(away));
    await othersGoOn("meanwhile");
    assert.ok(await cluster.get<Pod>("pod", "late"));
    faulty = await startDriver(bad);
    await cluster.waitFor("the pod to go", async () => (await cluster.kubectl(["get", "pod", "late"])).code !== 0);
    await nothingLeft();
    assert.equal(readFileSync(join(cluster.root, disks(), "handle-late/file"), "utf8"), "kept\n");
  });

  test("repeats an unanswered call once the driver is replaced, and reports the cause in the pod's event", async () => {
    faulty.delay("NodeStageVolume", Number.POSITIVE_INFINITY);
    await cluster.apply(volumeOf("replaced", bad));
    await pods.create("replaced", using("replaced"));
    await cluster.waitFor("the call", () => requests(faulty, "NodeStageVolume", "replaced").length === 1);
    faulty.stop();
    const message = /^MountVolume\.MountDevice failed for volume "replaced" : rpc error: code = Unavailable desc = /;
    await pods.event("replaced", "FailedMount", message);
    faulty = await startDriver(bad);
    await pods.ready("replaced");
    assert.equal(requests(faulty, "NodeStageVolume", "replaced").length, 1);
    await removed("replaced");
    await nothingLeft();
  });

  test("rejects invalid drivers with a reason, and keeps the registered ones", async () => {
    const refused: readonly (readonly [file: string, plugin: TestDriverOptions["plugin"], why: string])[] = [
      ["old", { supportedVersions: ["0.3.0"] }, "highest supported version reported is 0.3.0, must be v1.x"],
      ["none", { supportedVersions: [] }, "Plugin returned an empty list for supported versions"],
      ["nameless", { name: "" }, "plugin registration failed with err: driver name is empty"],
      ["outside", { endpoint: "/nowhere/csi.sock" }, "dial unix /nowhere/csi.sock: connect: no such file or directory"],
      ["impostor", { name: good }, "Another driver with the same name is already registered with a higher supported"],
      ["other", { type: "OtherPlugin" }, "no handler registered for plugin type: OtherPlugin"],
    ];
    for (const [file, plugin, why] of refused) {
      await using driver = await startDriver(`${file}.csi.graftlet.dev`, { plugin: plugin ?? {} });
      await cluster.waitFor(`${file} to be refused`, () => driver.told.length > 0);
      const [told] = driver.told;
      assert.equal(told?.pluginRegistered, false, file);
      assert.ok(
        told.error.startsWith("RegisterPlugin error -- ") && told.error.includes(why),
        `${file}: ${told.error}`,
      );
    }
    await shown(good, bad);
    await othersGoOn("unharmed");
  });

  test("retries a socket that speaks another protocol, and registers the driver that replaces it", async () => {
    const name = "late-riser.csi.graftlet.dev";
    const path = join(root(), "plugins_registry", `${name}-reg.sock`);
    const noise: Server = createServer((connection) => {
      connection.on("error", () => undefined);
      connection.end("HTTP/1.1 400 Bad Request\r\n\r\n");
    });
    await new Promise<void>((resolve) => void noise.listen(path, resolve));
    await cluster.waitFor("its failure in the log", () =>
      agent.log().includes(`RegisterPlugin error -- dial failed at socket ${path}, err: failed to dial socket`),
    );
    await othersGoOn("undisturbed");
    noise.close();
    rmSync(path, { force: true });
    await using riser = await startDriver(name);
    await shown(good, bad, name);
    // The driver is told once its CSINode has been written, which everybody sees.
    await cluster.waitFor("the driver to be told", () => riser.told.length > 0);
    assert.deepEqual(riser.told, [{ pluginRegistered: true, error: "" }]);
  });

  test("counts each call by driver, method and status", async () => {
    const text = await cluster.mustKubectl(["get", "--raw", `/api/v1/nodes/${cluster.nodeName}/proxy/metrics`]);
    const samples = parseExposition(text).get("csi_operations_seconds")?.samples ?? [];
    const count = (driver: string, method: string, code: string) =>
      samples.find(
        ({ name, labels }) =>
          name === "csi_operations_seconds_count" &&
          labels["driver_name"] === driver &&
          labels["method_name"] === `/csi.v1.Node/${method}` &&
          labels["grpc_status_code"] === code,
      )?.value ?? 0;
    assert.ok(count(bad, "NodeStageVolume", "Unavailable") >= 1);
    assert.ok(count(bad, "NodeStageVolume", "OK") >= 1);
    assert.ok(count(good, "NodePublishVolume", "OK") >= 4);
    assert.equal(existsSync(join(cluster.root, disks(), "handle-replaced")), true);
  });
});
