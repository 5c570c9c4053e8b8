import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import {
  chmod,
  lstat,
  mkdir,
  mkdtemp,
  readFile,
  readdir,
  realpath,
  rm,
  stat,
  symlink,
  writeFile,
} from "node:fs/promises";
import { after, before, test } from "node:test";
import { localHost } from "../../providers/local/host.ts";
import { listMounts } from "../../src/host/mounts.ts";
import { systemClock } from "../../src/lib/clock.ts";
import { createLogger } from "../../src/lib/log.ts";
import { applyFSGroup } from "../../src/volumes/persistent/apply-fs-group.ts";
import { createVolumes } from "../../src/volumes/volumes.ts";
import { unmeasured } from "../fakes/measures.ts";
import { allocatedPod } from "../../src/roles.ts";

const clock = systemClock();
const host = localHost({ clock });
const patience = AbortSignal.timeout(60_000);
const metadata = { name: "o", namespace: "default", uid: "o" };
let directory = "";
let rootDir = "";

before(async () => {
  directory = await realpath(await mkdtemp("/var/tmp/graftlet-volumes-"));
  rootDir = `${directory}/link`;
  await mkdir(`${directory}/root`);
  await symlink(`${directory}/root`, rootDir);
});

after(() => rm(directory, { recursive: true }));

/** The stage as a graftlet that has just started has it. */
function start(content: string) {
  const base64 = Buffer.from(content).toString("base64");
  return createVolumes({
    host,
    waitForTarget: undefined,
    clock,
    rootDir,
    nodeName: "node",
    measures: unmeasured.volumes,
    log: createLogger(0, { write: () => {} }),
    events: { event: (_about, _type, reason, message) => assert.fail(`${reason}: ${message}`) },
    objects: {
      configMap: async () => ({ metadata, data: { key: content } }),
      secret: async () => ({ metadata, data: { key: base64 } }),
    },
    claims: {
      claim: async () => assert.fail("no pod has a claim"),
      persistentVolume: async () => assert.fail("no pod has a claim"),
      patchStatus: async () => assert.fail("no pod has a claim"),
    },
    drivers: {
      driver: () => assert.fail("no pod has a claim"),
      csiDriver: async () => assert.fail("no pod has a claim"),
      refreshLimit: async () => assert.fail("no pod has a claim"),
      volumeAttachment: async () => assert.fail("no pod has a claim"),
    },
    onVolumesInUse: () => undefined,
    node: () => undefined,
    tokens: {
      token: async () => ({ token: content, refreshAt: clock.now() + 3_600_000, expiresAt: clock.now() + 3_600_000 }),
    },
    trustBundles: { trustAnchors: async () => assert.fail("no pod projects a trust bundle") },
    podCertificates: { credentials: () => assert.fail("no pod projects a certificate") },
    allocatable: () => ({ memory: "1Gi" }),
    mountsAllModes: false,
  });
}

/** A kernel without huge pages of this size has no file system for them; one that has none reserved has. */
const pages = existsSync("/sys/kernel/mm/hugepages/hugepages-2048kB")
  ? [{ name: "pages", emptyDir: { medium: "HugePages-2Mi" } }]
  : [];
const volumes = [
  ...pages,
  { name: "disk", emptyDir: {} },
  { name: "memory", emptyDir: { medium: "Memory", sizeLimit: "8Mi" } },
  { name: "map", configMap: { name: "o" } },
  { name: "secret", secret: { secretName: "o", defaultMode: 0o400 } },
  { name: "token", projected: { sources: [{ serviceAccountToken: { path: "token" } }] } },
];
const mounts = [
  ...volumes.map(({ name }) => ({ name, mountPath: `/${name}` })),
  { name: "disk", mountPath: "/map/inside" },
];
const pod = allocatedPod({
  metadata: { name: "p", namespace: "default", uid: "pod-1" },
  spec: {
    volumes,
    containers: [{ name: "c", image: "i", volumeMounts: mounts, resources: { requests: { "hugepages-2Mi": "2Mi" } } }],
  },
});

const at = (plugin: string, name: string) => `${rootDir}/pods/pod-1/volumes/kubernetes.io~${plugin}/${name}`;
const mountedHere = async () => (await listMounts(host)).filter(({ path }) => path.startsWith(`${directory}/`));

test("creates, adopts, updates and removes volumes of every kind on this machine", async () => {
  const first = start("one");
  await first.mount(pod, patience);
  assert.deepEqual((await mountedHere()).map(({ fsType }) => fsType).toSorted(), [
    ...pages.map(() => "hugetlbfs"),
    "tmpfs",
    "tmpfs",
    "tmpfs",
  ]);
  assert.equal(await readFile(`${at("configmap", "map")}/key`, "utf8"), "one");
  assert.equal(await readFile(`${at("projected", "token")}/token`, "utf8"), "one");
  assert.equal((await stat(`${at("secret", "secret")}/key`)).mode & 0o777, 0o400);
  assert.ok((await stat(`${at("configmap", "map")}/inside`)).isDirectory());
  assert.equal((await host.fs.fileSystemInfo(at("empty-dir", "memory"))).capacityBytes, 8 * 2 ** 20);
  await writeFile(`${at("empty-dir", "memory")}/kept`, "");
  first.stop();

  const versions = () => Promise.all([readdir(at("configmap", "map")), readdir(at("secret", "secret"))]);
  const before = await versions();
  const second = start("one");
  await second.mount(pod, patience);
  assert.deepEqual(await versions(), before);
  assert.equal((await mountedHere()).length, 3 + pages.length);
  assert.deepEqual(await readdir(at("empty-dir", "memory")), ["kept"]);
  second.stop();

  const third = start("two");
  await third.mount(pod, patience);
  assert.equal(await readFile(`${at("secret", "secret")}/key`, "utf8"), "two");
  third.stop();

  const fourth = start("two");
  assert.deepEqual(await fourth.podDirectories(patience), ["pod-1"]);
  await fourth.unmount("pod-1", patience);
  assert.deepEqual(await mountedHere(), []);
  await fourth.removePodDirectory("pod-1", patience);
  assert.deepEqual(await readdir(`${rootDir}/pods`), []);
});

test("changes the group of files and directories in a tree, but not of links; does not walk the tree if its root already has the group", async () => {
  const tree = `${directory}/tree`;
  const outside = `${directory}/outside`;
  await mkdir(`${tree}/sub dir`, { recursive: true, mode: 0o700 });
  await writeFile(outside, "", { mode: 0o600 });
  await writeFile(`${tree}/plain`, "", { mode: 0o600 });
  await writeFile(`${tree}/sub dir/program`, "");
  await chmod(`${tree}/sub dir/program`, 0o6755);
  await symlink(outside, `${tree}/sub dir/link`);
  const log = createLogger(0, { write: (line) => assert.fail(line) });
  const deps = { host, clock, log, events: { event: () => assert.fail("an event") } };
  const given = (policy: string, fsGroup: number) =>
    applyFSGroup(
      deps,
      { ...pod, spec: { containers: [], securityContext: { fsGroup, fsGroupChangePolicy: policy } } },
      tree,
      patience,
    );
  const seen = async () => {
    const paths = ["", "/plain", "/sub dir", "/sub dir/program", "/sub dir/link"].map((path) => tree + path);
    const all = await Promise.all([...paths, outside].map((path) => lstat(path)));
    return all.map(({ gid, mode }) => `${gid} ${(mode & 0o7777).toString(8)}`);
  };
  await given("Always", 4321);
  const after = ["4321 2770", "4321 660", "4321 2770", "4321 6775", "4321 777", "0 600"];
  assert.deepEqual(await seen(), after);
  await chmod(`${tree}/plain`, 0o600);
  await given("OnRootMismatch", 4321);
  assert.equal((await seen())[1], "4321 600");
  await given("OnRootMismatch", 4322);
  assert.deepEqual(
    await seen(),
    after.map((line) => line.replace("4321", "4322")),
  );
});
