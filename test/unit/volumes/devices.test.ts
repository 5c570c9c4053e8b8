import assert from "node:assert/strict";
import { test } from "node:test";
import type { Volume } from "../../../src/objects.ts";
import { loopDevices } from "../../fakes/host-programs.ts";
import { type TestPod, aContainer } from "../../fakes/pods.ts";
import { never } from "../../fakes/signals.ts";
import { type Bench, podWith, rootDir, volumeBench } from "./volume-bench.ts";
import { argvOf } from "../../harness/argv.ts";

const data: Volume = { name: "v", persistentVolumeClaim: { claimName: "data" } };
const all = `${rootDir}/plugins/kubernetes.io~local-volume/volumeDevices`;
const linkOf = (uid: string) => `${rootDir}/pods/${uid}/volumeDevices/kubernetes.io~local-volume/pv`;

/** A pod that uses the volume as a block device. */
function aPod(uid = "uid-1"): TestPod {
  const container = aContainer("c", { volumeDevices: [{ name: "v", devicePath: "/dev/v" }] });
  return podWith([data], { containers: [container] }, { uid });
}

/** A claim of a local block volume, whose path is a link to the device. */
async function bound(): Promise<Bench> {
  const bench = volumeBench();
  const claimRef = { name: "data", namespace: "default", uid: "uid-of-data" };
  const status = { phase: "Bound" };
  bench.claims.set("data", { metadata: claimRef, spec: { volumeName: "pv" }, status });
  const spec = { claimRef, volumeMode: "Block", local: { path: "/dev/one" }, accessModes: ["ReadWriteMany"] };
  bench.volumes.set("pv", { metadata: { name: "pv" }, spec });
  bench.host.files.put("/dev/disk", { kind: "blockDevice" });
  await bench.host.fs.apply([{ kind: "symlink", path: "/dev/one", target: "/dev/disk" }]);
  return bench;
}

/** Traces of the volume on the target: mounts and loop devices. */
async function standing({ host }: Bench): Promise<{ readonly mounts: readonly string[]; readonly held: string[] }> {
  const mounts = host.files.mounted().map(({ path }) => path);
  return { mounts, held: [...(await loopDevices(host.files)).values()] };
}

const nothing = { mounts: [], held: [] };
const of = (...uids: readonly string[]) => {
  const paths = uids.map((uid) => `${all}/pv/${uid}`);
  return { mounts: paths, held: paths };
};

/** The pod's first event, after which its set-up is cancelled. */
async function refused(bench: Bench): Promise<string> {
  const giveUp = new AbortController();
  const stage = bench.start();
  const ending = assert.rejects(stage.mount(aPod(), giveUp.signal));
  await bench.clock.advance(100);
  giveUp.abort();
  await ending;
  await stage.unmount("uid-1", never);
  return bench.events[0] ?? "";
}

test("maps a device with a link, a bind mount and a loop device, with the kubelet's events; unmaps it with the pod", async () => {
  const bench = await bound();
  const { host, events } = bench;
  const stage = bench.start();
  await stage.mount(aPod(), never);
  const link = linkOf("uid-1");
  assert.deepEqual(
    [...stage.mounted("uid-1").values()],
    [
      {
        hostPath: link,
        readOnly: false,
        expandableId: "pv",
        persistent: { name: "pv", plugin: "kubernetes.io/local-volume", isDevice: true, space: "device" },
      },
    ],
  );
  assert.equal(await host.fs.readlink(link), "/dev/disk");
  assert.equal((await host.fs.lstat(`${all}/pv/uid-1`)).kind, "blockDevice");
  assert.deepEqual(await standing(bench), of("uid-1"));
  const began = 'Pod Normal SuccessfulMountVolume: MapVolume.MapPodDevice succeeded for volume "pv"';
  assert.deepEqual(events, [
    `${began} globalMapPath "${all}/pv"`,
    `${began} volumeMapPath "${rootDir}/pods/uid-1/volumeDevices/kubernetes.io~local-volume"`,
  ]);
  await stage.unmount("uid-1", never);
  assert.deepEqual(await standing(bench), nothing);
  assert.deepEqual(host.files.tree(all), []);
  await assert.rejects(host.fs.lstat(link), { code: "not_found" });
  assert.equal((await host.fs.lstat("/dev/disk")).kind, "blockDevice");
  assert.deepEqual(bench.tornDown, [
    "unmap_volume kubernetes.io/local-volume gone",
    "unmap_device kubernetes.io/local-volume gone",
  ]);
  assert.equal(bench.inUse, undefined);
});

test("maps a device for two pods separately; the last one to end removes the volume's directory", async () => {
  const bench = await bound();
  const stage = bench.start();
  await Promise.all(["uid-1", "uid-2"].map((uid) => stage.mount(aPod(uid), never)));
  const { mounts, held } = await standing(bench);
  assert.deepEqual(mounts.toSorted(), of("uid-1", "uid-2").mounts);
  assert.deepEqual(held.toSorted(), of("uid-1", "uid-2").held);
  await stage.unmount("uid-1", never);
  assert.deepEqual(await standing(bench), of("uid-2"));
  await stage.unmount("uid-2", never);
  assert.deepEqual(await standing(bench), nothing);
  assert.deepEqual(bench.host.files.tree(all), []);
});

test("after a restart, finds existing mappings: no second bind mount, loop device or event", async () => {
  const bench = await bound();
  await bench.start().mount(aPod(), never);
  bench.events.length = 0;
  const next = bench.start();
  await next.recover(never);
  await next.mount(aPod(), never);
  assert.deepEqual(await standing(bench), of("uid-1"));
  assert.deepEqual(bench.events, []);
  assert.deepEqual(bench.inUse, []);
});

test("binds the device to an existing file, and keeps anything else that exists at its path", async () => {
  const bench = await bound();
  bench.host.files.put(`${all}/pv/uid-1`);
  const stage = bench.start();
  await stage.mount(aPod(), never);
  assert.deepEqual(await standing(bench), of("uid-1"));
  await stage.unmount("uid-1", never);
  await bench.host.fs.apply([
    { kind: "mkdir", path: `${all}/pv`, parents: true },
    { kind: "symlink", path: `${all}/pv/uid-1`, target: "/precious" },
  ]);
  bench.events.length = 0;
  assert.match(await refused(bench), /FailedMapVolume: .*uid-1 is not a regular file created by the node$/);
  assert.deepEqual(await standing(bench), nothing);
});

test("unmaps a device whose loop device is gone; a restart attaches it again", async () => {
  const bench = await bound();
  const stage = bench.start();
  await stage.mount(aPod(), never);
  await bench.host.run(argvOf(["losetup", "-d", "/dev/loop0"]));
  const next = bench.start();
  await next.mount(aPod(), never);
  assert.deepEqual(await standing(bench), of("uid-1"));
  await bench.host.run(argvOf(["losetup", "-d", "/dev/loop0"]));
  await next.unmount("uid-1", never);
  assert.deepEqual(await standing(bench), nothing);
});

test("detaches both loop devices that a killed process left on one file", async () => {
  const bench = await bound();
  const stage = bench.start();
  await stage.mount(aPod(), never);
  await bench.host.run(argvOf(["losetup", "-f", `${all}/pv/uid-1`]));
  await stage.unmount("uid-1", never);
  assert.deepEqual(await standing(bench), nothing);
});

test("keeps a busy device bound, and delays the pod's end", async () => {
  const bench = await bound();
  const { host, clock } = bench;
  const stage = bench.start();
  await stage.mount(aPod(), never);
  let isOpen = true;
  host.program("losetup", () => (isOpen ? 0 : 1));
  const ending = assert.rejects(stage.unmount("uid-1", never), { code: "conflict", message: /target is busy/ });
  for (let ms = 0; ms < 8_000; ms += 500) await clock.advance(500);
  await ending;
  assert.deepEqual(await standing(bench), of("uid-1"));
  assert.equal(await host.fs.readlink(linkOf("uid-1")), "/dev/disk");
  isOpen = false;
  await assert.rejects(stage.unmount("uid-1", never), /removeLoopDevice failed .* losetup -d \/dev\/loop0 failed/);
});

test("a restart removes mappings of pods without a directory, and keeps those of existing pods", async () => {
  const bench = await bound();
  const stage = bench.start();
  await Promise.all(["uid-1", "uid-2"].map((uid) => stage.mount(aPod(uid), never)));
  await bench.host.fs.apply([{ kind: "remove", path: `${rootDir}/pods/uid-1`, recursive: true }]);
  const next = bench.start();
  await next.recover(never);
  await bench.clock.advance(1_000);
  assert.equal((await standing(bench)).mounts.length, 2);
  await bench.host.fs.apply([{ kind: "remove", path: linkOf("uid-2") }]);
  await next.unmount("uid-2", never);
  assert.deepEqual(await standing(bench), nothing);
  assert.deepEqual(bench.host.files.tree(all), []);
});

for (const [what, break_, why] of [
  [
    "no losetup",
    ({ host }: Bench) => host.program("losetup", undefined),
    'exec: "losetup": executable file not found in $PATH',
  ],
  [
    "no free loop device",
    ({ host }: Bench) =>
      host.program("losetup", (_args, { stderr }) => {
        stderr.write("losetup: cannot find an unused loop device\n");
        return 1;
      }),
    "exit status 1: losetup: cannot find an unused loop device",
  ],
] as const)
  test(`reports why a device cannot be mapped on a target with ${what}`, async () => {
    const bench = await bound();
    break_(bench);
    const file = `${all}/pv/uid-1`;
    assert.equal(
      await refused(bench),
      `Pod Warning FailedMapVolume: MapVolume.MapBlockVolume failed for volume "pv" : blkUtil.AttachFileDevice failed. globalMapPath:${all}/pv, podUID: uid-1: makeLoopDevice failed for path ${file}: losetup -f ${file} failed: ${why}`,
    );
    assert.deepEqual(await standing(bench), nothing);
  });
