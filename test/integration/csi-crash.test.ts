import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import type { CSINode, Node, Pod, VolumeAttachment } from "../../src/objects.ts";
import { type Agent, startGraftlet } from "../harness/agent.ts";
import { claim, persistentVolume, storageClass } from "../harness/claims.ts";
import { type Cluster, startCluster } from "../harness/cluster.ts";
import { startTestDriver, type TestDriver } from "../harness/csi-driver.ts";
import type { CallMoment } from "../harness/csi-stops.ts";
import { heldDevices } from "../harness/held-devices.ts";
import { mount } from "../harness/manifests.ts";
import { mountsOf } from "../harness/pod-machine.ts";
import { openPods, type Pods, shell, type SpecDraft, statusOf } from "../harness/pods.ts";

const driverName = "crash.csi.graftlet.dev";
const moments: readonly CallMoment[] = ["before", "within", "after"];
const starting = ["NodeStageVolume", "NodePublishVolume"].flatMap(atAllMoments);
const ending = ["NodeUnpublishVolume", "NodeUnstageVolume"].flatMap(atAllMoments);

function atAllMoments(method: string) {
  return moments.map((moment) => ({ moment, method }));
}

// graftlet is killed at each step that it and a storage driver take together. Every pod has two volumes, files and a device, which come
// to each step side by side. They have to be attached: the test attaches them, and sees that none is detached that is mounted.
describe("graftlet killed while volumes are set up and torn down", { timeout: 900_000 }, () => {
  const owned = new AsyncDisposableStack();
  let cluster: Cluster;
  let agent: Agent;
  let pods: Pods;
  let driver: TestDriver;
  let device: string;
  let attacher: ReturnType<typeof attachVolumes>;
  const standing = new Map<string, Pod>();
  const uids = new Map<string, string>();

  const root = () => cluster.layout.kubeletRoot;
  const disks = () => join(cluster.layout.dir, "disks");
  const inside = (...argv: readonly string[]) => cluster.mustRunInside(argv);
  const restart = async () => {
    agent = await startGraftlet(cluster, { args: ["-v=5"], config: { syncFrequency: "5s" } });
  };

  before(async () => {
    cluster = owned.use(await startCluster({ name: "csi-crash" }));
    pods = owned.use(await openPods(cluster));
    await inside("mkdir", "-p", disks());
    await inside("truncate", "-s", "16M", join(disks(), "raw.img"));
    device = (await inside("losetup", "--find", "--show", join(disks(), "raw.img"))).trim();
    driver = owned.use(
      await startTestDriver({
        name: driverName,
        rootDir: root(),
        disks: disks(),
        run: (argv) => cluster.mustRunInside(argv),
        device,
      }),
    );
    await cluster.apply([
      storageClass,
      { apiVersion: "storage.k8s.io/v1", kind: "CSIDriver", metadata: { name: driverName }, spec: {} },
    ]);
    attacher = owned.use(attachVolumes(cluster, pods));
    await restart();
    standing.set("bystander", await started("bystander"));
    await settled();
  });
  after(async () => {
    await agent?.[Symbol.asyncDispose]();
    if (device) await inside("losetup", "-d", device);
    await owned.disposeAsync();
  });

  /** Makes the volumes of a pod: one of files, with a file in it, and one that is a device. */
  async function made(name: string): Promise<SpecDraft> {
    const block = { volumeMode: "Block" };
    const source = (volume: string) => ({ csi: { driver: driverName, volumeHandle: `handle-${volume}` } });
    const [files, raw] = volumesOf(name);
    await inside("sh", "-c", `mkdir -p ${disks()}/handle-${files}; echo ${name} > ${disks()}/handle-${files}/kept`);
    await cluster.apply([
      persistentVolume(files, source(files)),
      claim(files, files),
      persistentVolume(raw, { ...source(raw), ...block }),
      claim(raw, raw, block),
    ]);
    return using(name);
  }

  async function started(name: string): Promise<Pod> {
    const { metadata } = await pods.create(name, await made(name));
    uids.set(name, metadata.uid);
    return pods.ready(name);
  }

  /** Waits until nothing lacks that standing pods want of the target and of the cluster, and nothing else is there. */
  async function settled(): Promise<void> {
    const ofPods = [...standing].flatMap(([name, { metadata }]) => wants(root(), name, metadata.uid));
    const wanted = [`driver: ${driverName}`, ...ofPods];
    let wrong: readonly string[] = [];
    const looks = async () => {
      const node = await pods.api.get<Node>(`/api/v1/nodes/${cluster.nodeName}`);
      const csiNode = await pods.api.get<CSINode>(`/apis/storage.k8s.io/v1/csinodes/${cluster.nodeName}`);
      const found = [
        ...(csiNode.spec.drivers ?? []).map(({ name }) => `driver: ${name}`),
        ...mountsOf(cluster).filter((path) => /kubernetes\.io[~/]csi/.test(path)),
        ...(node.status?.volumesInUse ?? []),
        ...(await attacher.attached()),
        ...directoriesOf(join(cluster.root, root())),
        ...[...(await heldDevices(cluster)).keys()].map((path) => `held: ${path}`),
      ];
      wrong = difference(found, wanted);
      return wrong.length === 0;
    };
    const explain = () =>
      wrong.map((one) => [...uids].reduce((text, [name, uid]) => text.replace(uid, name), one)).join("\n");
    await cluster.waitFor("the target to be as the cluster wants it", looks, { timeoutMs: 10_000, explain });
    assert.deepEqual(attacher.wrongs, []);
    const bystander = await pods.until("bystander", "to be there", () => true);
    assert.equal(statusOf(bystander)?.restartCount, 0);
  }

  /** The next graftlet starts while the driver works on. */
  async function killedAt(stops: readonly ReturnType<TestDriver["stopAt"]>[], meanwhile = async () => {}) {
    await cluster.waitFor("the driver's calls", () => stops.every((stop) => stop.isReached()));
    await agent.kill("SIGKILL");
    await meanwhile();
    await restart();
    for (const stop of stops) stop.release();
  }

  const handles = (name: string) => volumesOf(name).map((volume) => `handle-${volume}`);

  const read = (name: string) =>
    cluster.mustKubectl(["exec", name, "--", "sh", "-c", "cat /v/kept /v/written; head -c 7 /dev/raw"]);

  test("killed at any step of a pod's start or end, resumes there, and cleans up pods that were force-deleted meanwhile", async () => {
    const all = (word: string) => starting.map((_, index) => `${word}-${index}`);
    const [staying, coming, leaving, going] = [all("staying"), all("coming"), all("leaving"), all("going")];
    const here = [...leaving, ...going];
    const specs = new Map(
      await Promise.all([...staying, ...coming].map(async (name) => [name, await made(name)] as const)),
    );
    await Promise.all(here.map(started));
    const stopsOf = (names: readonly string[], steps: typeof starting) =>
      steps.map(({ moment, method }, index) => driver.stopAt(moment, method, handles(names[index] ?? "")));
    const stops = [staying, coming].flatMap((names) => stopsOf(names, starting));
    const ends = [leaving, going].flatMap((names) => stopsOf(names, ending));
    const gone = leaving.map((name) => pods.gone(name));
    for (const [name, spec] of specs) uids.set(name, (await pods.create(name, spec)).metadata.uid);
    await Promise.all(here.map((name) => pods.remove(name, 1)));
    await killedAt([...stops, ...ends], async () => {
      await Promise.all([...coming, ...going].map((name) => pods.remove(name, 0)));
    });
    for (const pod of await Promise.all(staying.map((name) => pods.ready(name)))) {
      standing.set(pod.metadata.name, pod);
      assert.equal(statusOf(pod)?.restartCount, 0);
    }
    await Promise.all(gone);
    await settled();
    for (const name of staying) assert.equal(await read(name), `${name}\n${name}\nwritten`);
    for (const name of [...coming, ...here])
      assert.equal(await inside("cat", `${disks()}/handle-${name}-files/kept`), `${name}\n`);
    await Promise.all(staying.map((name) => pods.remove(name, 1)));
    for (const name of staying) standing.delete(name);
    await settled();
  });

  test("with damaged records, terminates a pod whose volume was unmounted by hand or replaced with a symbolic link, and touches nothing outside", async () => {
    const { metadata } = await started("meddled");
    const [files, raw] = volumesOf("meddled");
    const volume = `${root()}/pods/${metadata.uid}/volumes/kubernetes.io~csi/${files}`;
    const precious = join(disks(), "precious");
    const record = `${root()}/plugins/kubernetes.io/csi/${driverName}/${sumOf(files)}/vol_data.json`;
    const link = `mkdir -p ${precious}/mount && echo kept > ${precious}/mount/file && ln -s ${precious} ${volume}`;
    await inside("sh", "-c", `umount ${volume}/mount && rm -r ${volume} && ${link} && : > ${record}`);
    await inside("umount", `${root()}/plugins/kubernetes.io/csi/volumeDevices/publish/${raw}/${metadata.uid}`);
    const gone = pods.gone("meddled");
    await pods.remove("meddled", 1);
    await gone;
    await settled();
    assert.equal(await inside("cat", `${precious}/mount/file`), "kept\n");
    assert.equal(await inside("cat", `${disks()}/handle-${files}/kept`), "meddled\n");
  });

  test("hands over the volumes if a pod is force-deleted and its successor is created while graftlet is down", async () => {
    await started("hand");
    await agent.kill("SIGKILL");
    await pods.remove("hand", 0);
    await cluster.waitFor(
      "the name to be free",
      async () => (await cluster.kubectl(["get", "pod", "hand"])).code !== 0,
    );
    await pods.create("hand", using("hand"));
    await restart();
    standing.set("hand", await pods.until("hand", "to be Ready", (pod) => statusOf(pod)?.ready === true));
    await settled();
    assert.equal(await read("hand"), "hand\nhand\nwritten");
    assert.equal(await read("bystander"), "bystander\nbystander\nwritten");
  });
});

function volumesOf(name: string): readonly [files: string, raw: string] {
  return [`${name}-files`, `${name}-raw`];
}

function using(name: string): SpecDraft {
  const [files, raw] = volumesOf(name);
  return {
    terminationGracePeriodSeconds: 1,
    volumes: [
      { name: "files", persistentVolumeClaim: { claimName: files } },
      { name: "raw", persistentVolumeClaim: { claimName: raw } },
    ],
    containers: [
      shell(`cat /v/kept > /v/written; printf written > /dev/raw; sync; sleep 3600`, {
        volumeMounts: [mount("files", { mountPath: "/v" })],
        volumeDevices: [{ name: "raw", devicePath: "/dev/raw" }],
      }),
    ],
  };
}

const uniqueName = (volume: string) => `kubernetes.io/csi/${driverName}^handle-${volume}`;
const sumOf = (volume: string) => createHash("sha256").update(`handle-${volume}`).digest("hex");

/** All that is there for a pod: mounts, volumes in use and attached, directories. */
function wants(root: string, name: string, uid: string): readonly string[] {
  const volumes = volumesOf(name);
  const [files, raw] = volumes;
  const plugin = "plugins/kubernetes.io/csi";
  const devices = ["", "publish/", "staging/"].map((each) => `${plugin}/volumeDevices/${each}${raw}`);
  return [
    `${root}/${plugin}/${driverName}/${sumOf(files)}/globalmount`,
    `${root}/pods/${uid}/volumes/kubernetes.io~csi/${files}/mount`,
    `${root}/${plugin}/volumeDevices/publish/${raw}/${uid}`,
    `${root}/${plugin}/volumeDevices/${raw}/dev/${uid}`,
    `held: ${root}/${plugin}/volumeDevices/${raw}/dev/${uid}`,
    ...volumes.map(uniqueName),
    ...volumes,
    `pods/${uid}`,
    `${plugin}/${driverName}/${sumOf(files)}`,
    ...devices,
  ];
}

/** What is in one list and not in the other, each as often as it is so. */
function difference(found: readonly string[], wanted: readonly string[]): readonly string[] {
  const left = [...wanted];
  const more = found.filter((one) => {
    const at = left.indexOf(one);
    if (at >= 0) left.splice(at, 1);
    return at < 0;
  });
  return [...more.map((one) => `more: ${one}`), ...left.map((one) => `lacks: ${one}`)];
}

/** Directories that are a pod's, or of one of its volumes. */
function directoriesOf(root: string): readonly string[] {
  const devices = "plugins/kubernetes.io/csi/volumeDevices";
  const parents = [
    "pods",
    `plugins/kubernetes.io/csi/${driverName}`,
    devices,
    `${devices}/publish`,
    `${devices}/staging`,
  ];
  return parents
    .flatMap((parent) => {
      const path = join(root, parent);
      return existsSync(path) ? readdirSync(path).map((name) => `${parent}/${name}`) : [];
    })
    .filter((path) => path !== `${devices}/publish` && path !== `${devices}/staging`)
    .toSorted();
}

/** Attaches what the control plane wants attached, as a driver's controller does. */
function attachVolumes(cluster: Cluster, pods: Pods) {
  const all = "/apis/storage.k8s.io/v1/volumeattachments";
  const wrongs: string[] = [];
  const stopped = new AbortController();
  const volumeOf = ({ spec }: VolumeAttachment) => spec.source.persistentVolumeName ?? "";
  const isMounted = (volume: string) =>
    mountsOf(cluster).some((path) => path.includes(`/${sumOf(volume)}/`) || path.includes(`/publish/${volume}/`));
  const heard = (type: string, attachment: VolumeAttachment) => {
    const volume = volumeOf(attachment);
    if (type === "DELETED" && isMounted(volume)) wrongs.push(`${volume} is detached while it is mounted`);
    if (type !== "ADDED" || attachment.status?.attached) return;
    const path = `${all}/${attachment.metadata.name}/status`;
    void pods.api.patch(path, { status: { attached: true } }, "merge-patch").catch(() => undefined);
  };
  const watching = (async () => {
    while (!stopped.signal.aborted)
      await pods.api.watch<VolumeAttachment>(`${all}?watch=true`, heard, stopped.signal).catch(() => undefined);
  })();
  return {
    wrongs,
    async attached(): Promise<readonly string[]> {
      const { items } = await pods.api.get<{ items: readonly VolumeAttachment[] }>(all);
      return items.map(volumeOf).toSorted();
    },
    async [Symbol.asyncDispose]() {
      stopped.abort();
      await watching;
    },
  };
}
