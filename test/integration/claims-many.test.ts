import assert from "node:assert/strict";
import { join } from "node:path";
import { after, before, test } from "node:test";
import type { CSINode } from "../../src/objects.ts";
import { startGraftlet } from "../harness/agent.ts";
import { claim, persistentVolume, storageClass } from "../harness/claims.ts";
import { type Cluster, startCluster } from "../harness/cluster.ts";
import { startTestDriver, type TestDriver } from "../harness/csi-driver.ts";
import { mount } from "../harness/manifests.ts";
import { mountsOf } from "../harness/pod-machine.ts";
import { openPods, type Pods, shell } from "../harness/pods.ts";
import { whole } from "../matrix.ts";

const driverName = "many.csi.graftlet.dev";
/** Pods, and claims of each. */
const many = whole ? 20 : 10;
const each = 10;

let cluster: Cluster;
let pods: Pods;
let driver: TestDriver;
const owned = new AsyncDisposableStack();
before(async () => {
  cluster = owned.use(await startCluster({ name: "claims-many" }));
  owned.use(await startGraftlet(cluster));
  pods = owned.use(await openPods(cluster));
  const about = { apiVersion: "storage.k8s.io/v1", kind: "CSIDriver", metadata: { name: driverName } };
  await cluster.apply([storageClass, { ...about, spec: { attachRequired: false } }]);
  driver = owned.use(
    await startTestDriver({
      name: driverName,
      rootDir: cluster.layout.kubeletRoot,
      disks: join(cluster.layout.dir, "disks"),
      run: (argv) => cluster.mustRunInside(argv),
    }),
  );
  await cluster.waitFor("the driver to be shown", async () => {
    const node = await cluster.get<CSINode>("csinode", cluster.nodeName);
    return node?.spec.drivers?.some(({ name }) => name === driverName) === true;
  });
});
after(() => owned.disposeAsync());

const published = () => mountsOf(cluster).filter((path) => /\/volumes\/kubernetes\.io~csi\//.test(path));

test(`mounts ${many * each} claims on one node concurrently, each exactly once, and unmounts them`, async (t) => {
  const volumes = Array.from({ length: many * each }, (_, index) => `volume-${index}`);
  const handle = (name: string) => ({ csi: { driver: driverName, volumeHandle: name } });
  await cluster.apply(volumes.flatMap((name) => [persistentVolume(name, handle(name)), claim(name, name)]));
  const bound = ["wait", "--for=jsonpath={.status.phase}=Bound", "pvc", "--all", "--timeout=120s"];
  await cluster.mustKubectl(bound, { timeoutMs: 130_000 });
  const names = Array.from({ length: many }, (_, index) => `many-${index}`);
  const ofPod = (index: number) => volumes.slice(index * each, (index + 1) * each);
  const asked = (method: string) =>
    driver.calls.filter((call) => call.method === method).map(({ request }) => String(request.volumeId));

  const began = performance.now();
  await Promise.all(names.map((name, index) => pods.create(name, podOf(ofPod(index)))));
  await Promise.all(names.map((name) => pods.ready(name)));
  const mounted = performance.now();
  assert.equal(published().length, volumes.length);
  for (const method of ["NodeStageVolume", "NodePublishVolume"])
    assert.deepEqual(asked(method).toSorted(), volumes.toSorted(), method);

  const gone = names.map((name) => pods.gone(name));
  await Promise.all(names.map((name) => pods.remove(name, 1)));
  await Promise.all(gone);
  await cluster.waitFor("nothing to be left", () =>
    mountsOf(cluster).every((path) => !/kubernetes\.io[~/]csi/.test(path)),
  );
  for (const method of ["NodeUnpublishVolume", "NodeUnstageVolume"])
    assert.deepEqual([...new Set(asked(method))].toSorted(), volumes.toSorted(), method);
  const seconds = (from: number, to: number) => ((to - from) / 1000).toFixed(1);
  t.diagnostic(`mounted after ${seconds(began, mounted)} s, gone after ${seconds(mounted, performance.now())} s`);
});

function podOf(claims: readonly string[]) {
  const volumeMounts = claims.map((name) => mount(name, { mountPath: `/${name}` }));
  return {
    volumes: claims.map((name) => ({ name, persistentVolumeClaim: { claimName: name } })),
    containers: [shell("exec sleep 3600", { volumeMounts })],
  };
}
