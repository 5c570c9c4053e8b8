import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { test } from "node:test";
import type { PersistentVolume, Volume } from "../../../src/objects.ts";
import { loopDevices } from "../../fakes/host-programs.ts";
import { aContainer } from "../../fakes/pods.ts";
import { never } from "../../fakes/signals.ts";
import { type Bench, directoryOf, podWith, rootDir, volumeBench } from "./volume-bench.ts";

const plugin = `${rootDir}/plugins/kubernetes.io/csi`;
const claimOf = (name: string): Volume => ({ name, persistentVolumeClaim: { claimName: name } });
const published = (name: string) => directoryOf("csi", name);
const other = { uid: "uid-2", name: "other" };

/** Bench with claims on CSI volumes, and on a local directory. */
function bound(): Bench {
  const bench = volumeBench();
  const add = (name: string, spec: NonNullable<PersistentVolume["spec"]>) => {
    const metadata = { name, namespace: "default", uid: name };
    bench.claims.set(name, { metadata, spec: { volumeName: name }, status: { phase: "Bound" } });
    bench.volumes.set(name, { metadata: { name }, spec: { claimRef: metadata, volumeMode: "Filesystem", ...spec } });
  };
  for (const name of ["one", "two"]) add(name, { csi: { driver: "d", volumeHandle: `h-${name}` } });
  add("raw", { csi: { driver: "d", volumeHandle: "h-raw" }, volumeMode: "Block" });
  add("disk", { local: { path: "/disk" } });
  add("device", { local: { path: "/disk" }, volumeMode: "Block" });
  add("remote", { nfs: { server: "s", path: "/" } });
  bench.host.files.put("/disk/row", { data: "kept" });
  bench.host.files.put("/precious/file", { data: "kept" });
  return bench;
}

const stagedData = ({ host }: Bench) => host.files.tree(`${plugin}/d`).filter((path) => path.endsWith("vol_data.json"));
const isMounted = ({ host }: Bench, path: string) => host.files.mounted().some((mount) => mount.path === path);

/** The error that prevents the pod's end. */
async function refused({ clock }: Bench, ending: Promise<void>): Promise<string> {
  const message = ending.then(
    () => "it ended",
    (error: unknown) => String(error),
  );
  for (let ms = 0; ms < 8_000; ms += 500) await clock.advance(500);
  return message;
}

const damages: readonly (readonly [string, string, RegExp])[] = [
  ["an empty file", "", /failed to parse volume data file \[.*\/one\/vol_data\.json\]/],
  ["garbage", "\0{", /failed to parse volume data file/],
  ["a list", "[]", /driverName or volumeHandle is missing/],
  [
    "another volume's data",
    '{"driverName":"d","volumeHandle":"h-two","specVolID":"two"}',
    /vol_data\.json\] belongs to another volume$/,
  ],
];

for (const [what, text, why] of damages)
  test(`with ${what} as a pod's vol_data.json, the mount stays, as in the kubelet, and other pods are not delayed`, async () => {
    const bench = bound();
    const { host, storage } = bench;
    await bench.start().mount(podWith([claimOf("one")]), never);
    host.files.put(`${published("one")}/vol_data.json`, { data: text });
    const next = bench.start();
    await next.recover(never);
    storage.calls.length = 0;
    const said = await refused(bench, next.unmount("uid-1", never));
    const target = `${published("one")}/mount`;
    assert.ok(said.includes(`kubernetes.io/csi: unmounter failed to load volume data file [${target}]: `), said);
    assert.match(said, why);
    assert.ok(isMounted(bench, target));
    assert.deepEqual(storage.calls, [], "neither is the driver asked of another volume, nor is this one unstaged");
    await next.mount(podWith([claimOf("two")], {}, other), never);
    await next.unmount("uid-2", never);
    assert.deepEqual(
      bench.host.files.mounted().filter(({ path }) => path.includes("uid-2")),
      [],
    );
    host.files.unmount(target);
    await next.unmount("uid-1", never);
    await next.removePodDirectory("uid-1", never);
    assert.deepEqual(
      host.files.tree(`${rootDir}/pods`).filter((path) => path.includes("uid-1")),
      [],
    );
    next.stop();
  });

for (const [what, text] of damages)
  test(`with ${what} as a staged volume's vol_data.json, the volume is still unstaged with its last pod`, async () => {
    const bench = bound();
    const { host, storage } = bench;
    await bench.start().mount(podWith([claimOf("one")]), never);
    const [file = ""] = stagedData(bench);
    host.files.put(file, { data: text });
    const next = bench.start();
    await next.recover(never);
    await next.mount(podWith([claimOf("two")], {}, other), never);
    assert.ok(isMounted(bench, file.replace("vol_data.json", "globalmount")));
    host.files.put(file, { data: text });
    storage.calls.length = 0;
    await next.unmount("uid-1", never);
    await bench.clock.advance(10_000);
    const staged = file.replace("vol_data.json", "globalmount");
    if (!isMounted(bench, staged)) assert.deepEqual(storage.calls.slice(-1), [`unstage h-one ${staged}`]);
    assert.equal(storage.calls.filter((call) => call.startsWith("unstage h-two")).length, 0);
    next.stop();
  });

test("a staged volume whose vol_data.json is damaged during its pod's life is unstaged with it", async () => {
  const bench = bound();
  const stage = bench.start();
  await stage.recover(never);
  await stage.mount(podWith([claimOf("one")]), never);
  const [file = ""] = stagedData(bench);
  bench.host.files.put(file, { data: "" });
  await stage.unmount("uid-1", never);
  assert.deepEqual(bench.host.files.mounted(), []);
  assert.deepEqual(bench.host.files.tree(`${plugin}/d`), []);
});

test("a block volume without its link stays mapped while the pod exists, and is removed with it", async () => {
  const bench = bound();
  const { host } = bench;
  const devices = { containers: [aContainer("c", { volumeDevices: [{ name: "raw", devicePath: "/dev/raw" }] })] };
  await bench.start().mount(podWith([claimOf("raw")], devices), never);
  const before = host.files.mounted();
  const link = `${rootDir}/pods/uid-1/volumeDevices/kubernetes.io~csi/raw`;
  await host.fs.apply([{ kind: "remove", path: link }]);
  const next = bench.start();
  await next.recover(never);
  await bench.clock.advance(1_000);
  assert.deepEqual(host.files.mounted(), before);
  assert.equal((await loopDevices(host.files)).size, 1);
  bench.storage.calls.length = 0;
  await next.unmount("uid-1", never);
  const all = `${plugin}/volumeDevices`;
  assert.deepEqual(bench.storage.calls, [
    `unpublish h-raw ${all}/publish/raw/uid-1`,
    `unstage h-raw ${all}/staging/raw`,
  ]);
  assert.deepEqual(host.files.mounted(), []);
  assert.equal((await loopDevices(host.files)).size, 0);
  assert.deepEqual(host.files.tree(all), [`${all}/publish`, `${all}/staging`]);
});

test("a published block volume with damaged metadata stays until it is unmounted", async () => {
  const bench = bound();
  const { host, storage } = bench;
  const devices = { containers: [aContainer("c", { volumeDevices: [{ name: "raw", devicePath: "/dev/raw" }] })] };
  await bench.start().mount(podWith([claimOf("raw")], devices), never);
  host.files.put(`${plugin}/volumeDevices/raw/data/vol_data.json`, { data: "" });
  const next = bench.start();
  await next.recover(never);
  storage.calls.length = 0;
  const said = await refused(bench, next.unmount("uid-1", never));
  assert.match(
    said,
    /kubernetes\.io\/csi: unmapper failed to load volume data file \[.*\/volumeDevices\/raw\/data\]: /,
  );
  const path = `${plugin}/volumeDevices/publish/raw/uid-1`;
  assert.ok(isMounted(bench, path));
  assert.deepEqual(storage.calls, []);
  host.files.unmount(path);
  await next.unmount("uid-1", never);
  assert.deepEqual(host.files.tree(`${rootDir}/pods/uid-1`), []);
});

for (const [what, place] of [
  ["a volume's directory", published("one")],
  ["the directory of a plugin", `${rootDir}/pods/uid-1/volumes/kubernetes.io~csi`],
  ["the directory of all volumes", `${rootDir}/pods/uid-1/volumes`],
] as const)
  test(`removes a symbolic link in place of ${what} at the pod's end, but not its target`, async () => {
    const bench = bound();
    const { host } = bench;
    const stage = bench.start();
    await stage.mount(podWith([claimOf("one")]), never);
    host.files.unmount(`${published("one")}/mount`);
    await host.fs.apply([
      { kind: "remove", path: place, recursive: true },
      { kind: "symlink", path: place, target: "/precious" },
    ]);
    await stage.unmount("uid-1", never);
    await stage.removePodDirectory("uid-1", never);
    assert.equal(host.files.text("/precious/file"), "kept");
    assert.deepEqual(host.files.tree("/precious"), ["/precious/file"]);
    assert.deepEqual(host.files.tree(`${rootDir}/pods`), []);
    assert.deepEqual(host.files.mounted(), [], "it is unstaged");
  });

test("sets up no volume through a symbolic link", async () => {
  for (const [name, directory] of [
    ["one", published("one")],
    ["disk", directoryOf("local-volume", "disk")],
    ["remote", directoryOf("nfs", "remote")],
  ] as const) {
    const bench = bound();
    await bench.host.fs.apply([
      { kind: "mkdir", path: directory.slice(0, directory.lastIndexOf("/")), parents: true },
      { kind: "symlink", path: directory, target: "/precious" },
    ]);
    const giveUp = new AbortController();
    const mounting = bench.start().mount(podWith([claimOf(name)]), giveUp.signal);
    await bench.clock.advance(100);
    giveUp.abort();
    await assert.rejects(mounting);
    assert.match(
      bench.events.join(),
      /SetUp failed for volume ".*" : .* is a symbolic link, not the volume's directory/,
    );
    assert.deepEqual(bench.host.files.tree("/precious"), ["/precious/file"]);
    assert.equal(isMounted(bench, "/precious"), false);
  }
});

test("stages no volume through a symbolic link", async () => {
  const sum = createHash("sha256").update("h-one").digest("hex");
  const deviceOf = (name: string) => ({
    containers: [aContainer("c", { volumeDevices: [{ name, devicePath: "/dev/raw" }] })],
  });
  const devices = deviceOf("raw");
  for (const [name, directory, spec] of [
    ["one", `${plugin}/d/${sum}`, {}],
    ["raw", `${plugin}/volumeDevices/raw`, devices],
    ["raw", `${plugin}/volumeDevices/staging/raw`, devices],
    ["raw", `${plugin}/volumeDevices/publish/raw`, devices],
    ["disk", `${rootDir}/plugins/kubernetes.io/local-volume/mounts/disk`, {}],
    ["device", `${rootDir}/plugins/kubernetes.io~local-volume/volumeDevices/device`, deviceOf("device")],
  ] as const) {
    const bench = bound();
    const { host, storage } = bench;
    await host.fs.apply([{ kind: "remove", path: "/disk", recursive: true }]);
    host.files.put("/disk", { kind: "blockDevice" });
    await host.fs.apply([
      { kind: "mkdir", path: directory.slice(0, directory.lastIndexOf("/")), parents: true },
      { kind: "symlink", path: directory, target: "/precious" },
    ]);
    const giveUp = new AbortController();
    const mounting = bench.start().mount(podWith([claimOf(name)], spec), giveUp.signal);
    await bench.clock.advance(100);
    giveUp.abort();
    await assert.rejects(mounting);
    assert.ok(
      bench.events.join().includes(`${directory} is a symbolic link, not the volume's directory`),
      bench.events.join(),
    );
    assert.deepEqual(storage.calls, []);
    assert.deepEqual(host.files.tree("/precious"), ["/precious/file"]);
    assert.deepEqual(host.files.mounted(), []);
  }
});

for (const [what, text] of [
  ["a vol_data.json of the volume", '{"driverName":"d","volumeHandle":"h-one","specVolID":"one"}'],
  ["an unrelated vol_data.json", "theirs"],
] as const)
  test(`deletes nothing of a volume published one directory too high with ${what}`, async () => {
    const bench = bound();
    const { host } = bench;
    const stage = bench.start();
    await stage.mount(podWith([claimOf("one")]), never);
    const directory = published("one");
    host.files.unmount(`${directory}/mount`);
    host.files.mount(directory, "csi", "h-one");
    host.files.put(`${directory}/vol_data.json`, { data: text });
    await host.fs.apply([{ kind: "mkdir", path: `${directory}/mount` }]);
    const own = host.files.tree(directory);
    const said = await refused(bench, stage.unmount("uid-1", never));
    assert.ok(said.includes(`${directory} is still mounted`), said);
    assert.deepEqual(host.files.tree(directory), own);
    host.files.unmount(directory);
    await stage.unmount("uid-1", never);
    await stage.removePodDirectory("uid-1", never);
    assert.deepEqual(host.files.tree(`${rootDir}/pods`), []);
    assert.deepEqual(host.files.mounted(), []);
    stage.stop();
  });

test("deletes nothing of a volume staged one directory too high, and unstages it once unmounted", async () => {
  const bench = bound();
  const { host, clock } = bench;
  const stage = bench.start();
  await stage.mount(podWith([claimOf("one")]), never);
  const [file = ""] = stagedData(bench);
  const directory = file.replace("/vol_data.json", "");
  host.files.unmount(`${directory}/globalmount`);
  host.files.mount(directory, "csi", "h-one");
  host.files.put(file, { data: '{"driverName":"d","volumeHandle":"h-one"}' });
  await host.fs.apply([{ kind: "mkdir", path: `${directory}/globalmount` }]);
  const own = host.files.tree(directory);
  await stage.unmount("uid-1", never);
  await clock.advance(5_000);
  assert.ok(isMounted(bench, directory));
  assert.deepEqual(host.files.tree(directory), own);
  host.files.unmount(directory);
  await clock.advance(5_000);
  assert.deepEqual(host.files.tree(`${plugin}/d`), []);
  stage.stop();
});

test("keeps files in the directory of an unmounted volume, and the pod's directory", async () => {
  const bench = bound();
  const { host } = bench;
  const stage = bench.start();
  await stage.mount(podWith([claimOf("disk")]), never);
  const directory = directoryOf("local-volume", "disk");
  host.files.unmount(directory);
  host.files.put(`${directory}/late`, { data: "kept" });
  const said = await refused(bench, stage.unmount("uid-1", never));
  const words = `orphaned pod "uid-1" found, but failed to rmdir() volume at path ${directory}: `;
  assert.ok(said.includes(words), said);
  await assert.rejects(stage.removePodDirectory("uid-1", never));
  assert.equal(host.files.text(`${directory}/late`), "kept");
  await host.fs.apply([{ kind: "remove", path: `${directory}/late` }]);
  await stage.unmount("uid-1", never);
  await stage.removePodDirectory("uid-1", never);
  assert.deepEqual(host.files.tree(`${rootDir}/pods`), []);
});

test("a volume whose pod directory was removed by hand stays staged until the pod has ended", async () => {
  const bench = bound();
  const { host, storage } = bench;
  const stage = bench.start();
  await stage.recover(never);
  await stage.mount(podWith([claimOf("one")]), never);
  await stage.mount(podWith([claimOf("one")], {}, other), never);
  host.files.unmount(`${published("one")}/mount`);
  await host.fs.apply([{ kind: "remove", path: published("one"), recursive: true }]);
  const unstaged = () => storage.calls.filter((call) => call.startsWith("unstage")).length;
  await stage.unmount("uid-2", never);
  assert.equal(unstaged(), 0);
  await stage.unmount("uid-1", never);
  assert.equal(unstaged(), 1);
  assert.deepEqual(host.files.mounted(), []);
});
