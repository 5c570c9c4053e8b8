import assert from "node:assert/strict";
import { test } from "node:test";
import type { PersistentVolume, Volume } from "../../../src/objects.ts";
import { loopDevices } from "../../fakes/host-programs.ts";
import { aContainer } from "../../fakes/pods.ts";
import { never } from "../../fakes/signals.ts";
import { iqn, iscsiBench } from "./iscsi-bench.ts";
import { type Bench, directoryOf, installSelinux, podWith, rootDir } from "./volume-bench.ts";

const targetPortal = "10.0.0.1";
const portal = `${targetPortal}:3260`;
const lun = 1;
const base = `${rootDir}/plugins/kubernetes.io/iscsi`;
const mounted = (disk = 1, iface = "default") => `${base}/iface-${iface}/${portal}-${iqn}-lun-${disk}`;
const attachedName = (disk = 1) => `kubernetes.io/iscsi/${targetPortal}:${iqn}:${disk}`;
const own = (source: Partial<NonNullable<Volume["iscsi"]>> = {}, name = "v"): Volume => ({
  name,
  iscsi: { targetPortal, iqn, lun, ...source },
});
const claimed: Volume = { name: "data", persistentVolumeClaim: { claimName: "data" } };
type IscsiBench = ReturnType<typeof iscsiBench>;

/** Bench with a claim on a disk. */
function bound(spec: NonNullable<PersistentVolume["spec"]> = {}): IscsiBench {
  const bench = iscsiBench(attachedName());
  const metadata = { name: "data", namespace: "default", uid: "u" };
  bench.claims.set("data", { metadata, spec: { volumeName: "pv" }, status: { phase: "Bound" } });
  const whole = { claimRef: metadata, volumeMode: "Filesystem", iscsi: { targetPortal, iqn, lun }, ...spec };
  bench.volumes.set("pv", { metadata: { name: "pv" }, spec: whole });
  return bench;
}

/** Paths below a directory, which need not exist. */
async function below({ fs, files }: Bench["host"], path: string): Promise<readonly string[]> {
  return (await fs.lstat(path).catch(() => undefined)) ? files.tree(path) : [];
}

/** What is left of disks on the machine. */
async function left({ host, initiator }: IscsiBench) {
  return {
    mounts: host.files.mounted().map(({ path }) => path),
    loops: [...(await loopDevices(host.files)).values()],
    sessions: initiator.sessions.map(({ portal: at, iface }) => `${at} ${iface}`),
    nodes: [...initiator.nodes.keys()],
    directories: (await below(host, base)).filter((path) => path.includes("-lun-")),
  };
}
const nothing = { mounts: [], loops: [], sessions: [], nodes: [], directories: [] };

/** The first event of a pod that cannot start; then the pod is gone. */
async function refused(bench: IscsiBench, volume: Volume, ms = 100): Promise<string> {
  const giveUp = new AbortController();
  const stage = bench.start();
  const ending = assert.rejects(stage.mount(podWith([volume]), giveUp.signal));
  await bench.clock.advance(ms);
  giveUp.abort();
  await ending;
  await stage.unmount("uid-1", never);
  return bench.events[0] ?? "";
}

test("logs in with CHAP, formats and mounts the disk once, binds it for the pod; afterwards logs out and deletes the record", async () => {
  const bench = iscsiBench(attachedName());
  const { host, initiator } = bench;
  initiator.password = "secret of the session";
  bench.setSecret("chap", {
    "discovery.sendtargets.auth.username": "finder",
    "discovery.sendtargets.auth.password": "secret of the discovery",
    "node.session.auth.username": "me",
    "node.session.auth.password": "secret of the session",
    "node.session.auth.password_in": "",
    other: "is not read",
  });
  const volume = own({ chapAuthDiscovery: true, chapAuthSession: true, secretRef: { name: "chap" }, fsType: "ext4" });
  const stage = bench.start();
  await stage.recover(never);
  await stage.mount(podWith([volume]), never);
  const db = `-m discoverydb -t sendtargets -p ${portal} -I default`;
  const node = `-m node -p ${portal} -T ${iqn} -I default`;
  assert.deepEqual(initiator.calls, [
    "-m iface -I default -o show",
    `${db} -o new`,
    `${db} -o update -n discovery.sendtargets.auth.authmethod -v CHAP`,
    `${db} -o update -n discovery.sendtargets.auth.username -v finder`,
    `${db} -o update -n discovery.sendtargets.auth.password -v secret of the discovery`,
    `${db} --discover`,
    `${db} -o new`,
    `${node} -o update -n node.session.scan -v manual`,
    `${node} -o update -n node.session.auth.authmethod -v CHAP`,
    `${node} -o update -n node.session.auth.username -v me`,
    `${node} -o update -n node.session.auth.password -v secret of the session`,
    `${node} --login`,
    `${node} -o update -n node.startup -v manual`,
  ]);
  const device = `/dev/disk/by-path/ip-${portal}-iscsi-${iqn}-lun-1`;
  const at = directoryOf("iscsi");
  assert.deepEqual(
    host.commands.filter(([name]) => name === "mkfs.ext4" || name === "mount").map((argv) => argv.join(" ")),
    [
      `mkfs.ext4 -F -m0 ${device}`,
      `mount -t ext4 -o defaults ${device} ${mounted()}`,
      `mount --bind ${mounted()} ${at}`,
    ],
  );
  assert.deepEqual(stage.mounted("uid-1").get("v"), {
    hostPath: at,
    readOnly: false,
    persistent: { name: "v", plugin: "kubernetes.io/iscsi", isDevice: false, space: "fileSystem" },
  });
  assert.deepEqual(bench.inUse, [attachedName()]);
  await stage.unmount("uid-1", never);
  assert.deepEqual(initiator.calls.slice(13), [`${node} --logout`, `${node} -o delete`]);
  assert.deepEqual(await left(bench), nothing);
  assert.deepEqual([bench.inUse, bench.events], [[], []]);
});

test("mounts a disk with the pod's SELinux label, again for a pod with another label, and keeps the mounts across a restart", async () => {
  const bench = bound({ accessModes: ["ReadWriteOncePod"] });
  const { host } = bench;
  installSelinux(bench);
  const labelled = (level: string, uid: string) =>
    podWith([claimed], { securityContext: { seLinuxOptions: { level } } }, { uid, name: uid });
  const diskMounts = () =>
    host.commands.filter(([name, option]) => name === "mount" && option === "-t").map((argv) => argv[4]);
  const context = (level: string) => `context="system_u:object_r:container_file_t:${level}",defaults`;
  const stage = bench.start();
  await stage.recover(never);
  await stage.mount(labelled("s0:c1,c2", "uid-1"), never);
  assert.deepEqual(diskMounts(), [context("s0:c1,c2")]);
  assert.equal(stage.mounted("uid-1").get("data")?.unlabelled, true);
  stage.stop();
  const again = bench.start();
  await again.recover(never);
  await again.mount(labelled("s0:c9", "uid-1"), never);
  assert.deepEqual(diskMounts(), [context("s0:c1,c2")], "the label of the mount, whatever the pod says now");
  await again.unmount("uid-1", never);
  await again.mount(labelled("s0:c3", "uid-2"), never);
  assert.deepEqual(diskMounts(), [context("s0:c1,c2"), context("s0:c3")]);
  await again.unmount("uid-2", never);
  assert.deepEqual(await left(bench), nothing);
});

test("waits until the cluster has attached the volume to the node", async () => {
  const bench = iscsiBench();
  const stage = bench.start();
  await stage.recover(never);
  const mounting = stage.mount(podWith([own()]), never);
  await bench.clock.advance(1_000);
  assert.deepEqual([bench.inUse, bench.initiator.calls], [[attachedName()], []]);
  bench.storage.status = {
    volumesInUse: [attachedName()],
    volumesAttached: [{ name: attachedName(), devicePath: "" }],
  };
  await bench.clock.advance(100);
  await mounting;
  assert.equal(bench.initiator.sessions.length, 1);
});

test("pods of one claim share the mount, and the last one ends the session, whichever process started it", async () => {
  const bench = bound({ mountOptions: ["noatime"] });
  const { host, initiator } = bench;
  const stage = bench.start();
  await stage.mount(podWith([claimed]), never);
  await stage.mount(podWith([claimed], {}, { uid: "uid-2", name: "second" }), never);
  assert.equal(initiator.calls.filter((line) => line.endsWith("--login")).length, 1);
  assert.ok(host.commands.some((argv) => argv.join(" ").startsWith("mount -t ext4 -o noatime,defaults ")));
  const next = bench.start();
  await next.recover(never);
  await next.unmount("uid-1", never);
  assert.equal(initiator.sessions.length, 1);
  assert.deepEqual(
    host.files.mounted().map(({ path }) => path),
    [mounted(), `${rootDir}/pods/uid-2/volumes/kubernetes.io~iscsi/pv`],
  );
  await next.unmount("uid-2", never);
  assert.deepEqual(await left(bench), nothing);
});

test("stays logged in while the node has another disk of the target, and removes only the kernel's disk of the first", async () => {
  const bench = iscsiBench(attachedName(1), attachedName(2));
  const { initiator } = bench;
  const stage = bench.start();
  await stage.mount(podWith([own({ lun: 1 })]), never);
  await stage.mount(podWith([own({ lun: 2 })], {}, { uid: "uid-2", name: "second" }), never);
  const [session] = initiator.sessions;
  assert.deepEqual([initiator.sessions.length, [...(session?.disks.keys() ?? [])]], [1, [1, 2]]);
  await stage.unmount("uid-1", never);
  assert.deepEqual([initiator.sessions.length, [...(session?.disks.keys() ?? [])]], [1, [2]]);
  await stage.unmount("uid-2", never);
  assert.deepEqual(await left(bench), nothing);
});

test("reports a rejected password in the kubelet's words without the password, and leaves nothing behind", async () => {
  const bench = iscsiBench(attachedName());
  bench.initiator.password = "right";
  bench.setSecret("chap", { "node.session.auth.username": "me", "node.session.auth.password": "wrong password" });
  const event = await refused(bench, own({ chapAuthSession: true, secretRef: { name: "chap" } }));
  const what = `[iface: default, target: ${iqn}, portal: 10.0.0.1,3260]`;
  assert.equal(
    event,
    `Pod Warning FailedMount: MountVolume.WaitForAttach failed for volume "v" : failed to get any path for iscsi disk, last err seen:\niscsi: failed to attach disk: Error: Logging in to ${what}\niscsiadm: Could not login to ${what}.\niscsiadm: initiator reported error (24 - iSCSI login failed due to authorization failure)\niscsiadm: Could not log into all portals\n (exit status 24)`,
  );
  assert.doesNotMatch(bench.events.join(), /wrong password/);
  assert.deepEqual(await left(bench), nothing);
});

test("errors contain no value of the secret, even if iscsiadm prints it or takes too long", async () => {
  for (const outcome of ["refuses", "hangs"] as const) {
    const bench = iscsiBench(attachedName());
    bench.setSecret("chap", { "node.session.auth.password": "the password" });
    const { clock, host } = bench;
    host.program("iscsiadm", (args, { stdout, stderr, killed }) => {
      if (args.includes("show")) stdout.write("iface.transport_name = tcp\n");
      if (!args.includes("node.session.auth.password")) return 0;
      stderr.write(`iscsiadm: cannot set ${args.at(-1)}\n`);
      if (outcome === "refuses") return 7;
      return clock.sleep(1_000_000, killed).then(
        () => 0,
        () => 137,
      );
    });
    const event = await refused(bench, own({ chapAuthSession: true, secretRef: { name: "chap" } }), 70_000);
    assert.match(event, /failed to get any path for iscsi disk/);
    assert.match(event, outcome === "refuses" ? /cannot set …/ : /iscsiadm timed out after 60000 ms/);
    assert.doesNotMatch(bench.events.join(), /the password/);
  }
});

test("reports a missing secret, a missing iscsiadm and a missing interface in the kubelet's words", async () => {
  const failed = "Pod Warning FailedMount: MountVolume";
  const withSecret = own({ chapAuthSession: true, secretRef: { name: "none" } });
  assert.equal(
    await refused(iscsiBench(attachedName()), withSecret),
    `${failed}.NewMounter initialization failed for volume "v" : couldn't get secret default/none error: secret "none" not found`,
  );
  const without = iscsiBench(attachedName());
  without.host.program("iscsiadm", undefined);
  assert.equal(
    await refused(without, own()),
    `${failed}.WaitForAttach failed for volume "v" : exec: "iscsiadm": executable file not found in $PATH`,
  );
  assert.deepEqual(await left(without), nothing);
  assert.equal(
    await refused(iscsiBench(attachedName()), own({ iscsiInterface: "fast" })),
    `${failed}.WaitForAttach failed for volume "v" : exit status 6`,
  );
});

test("an initiator name gets its own interface and session, which end with the volume", async () => {
  const bench = bound({ iscsi: { targetPortal, iqn, lun, initiatorName: "iqn.2026-01.dev.graftlet:me" } });
  const { host, initiator } = bench;
  const stage = bench.start();
  await stage.mount(podWith([claimed]), never);
  const iface = `${portal}:pv`;
  assert.deepEqual(
    initiator.calls.filter((line) => line.startsWith(`-m iface -I ${iface} `)),
    [
      `-m iface -I ${iface} -o new`,
      `-m iface -I ${iface} -o show`,
      `-m iface -I ${iface} -o update -n iface.initiatorname -v iqn.2026-01.dev.graftlet:me`,
    ],
  );
  assert.deepEqual(
    initiator.sessions.map((one) => one.iface),
    [iface],
  );
  assert.ok(host.files.mounted().some(({ path }) => path === mounted(1, iface)));
  await stage.unmount("uid-1", never);
  assert.deepEqual([await left(bench), [...initiator.interfaces]], [nothing, ["default"]]);
});

test("uses the multipath device above the paths of several portals, and flushes it before the disks are removed", async () => {
  const bench = iscsiBench(attachedName());
  const { host, initiator } = bench;
  initiator.multipath = true;
  const stage = bench.start();
  await stage.mount(podWith([own({ portals: ["10.0.0.2", "10.0.0.2:3260"] })]), never);
  assert.equal(initiator.sessions.length, 2);
  assert.ok(host.commands.some((argv) => argv.join(" ") === `mount -t ext4 -o defaults /dev/dm-0 ${mounted()}`));
  await stage.unmount("uid-1", never);
  assert.ok(host.commands.some((argv) => argv.join(" ") === "multipath -f /dev/dm-0"));
  assert.deepEqual(await left(bench), nothing);
});

test("mounts one path if the other portals do not answer in five rounds, and waits only briefly for a multipath device", async () => {
  const bench = iscsiBench(attachedName());
  const { host, initiator, clock } = bench;
  initiator.down.add("10.0.0.2:3260");
  const mounting = bench.start().mount(podWith([own({ portals: ["10.0.0.2"] })]), never);
  await clock.advance(9_000);
  await mounting;
  assert.equal(initiator.calls.filter((line) => line.includes("10.0.0.2") && line.endsWith("--discover")).length, 5);
  const device = `/dev/disk/by-path/ip-${portal}-iscsi-${iqn}-lun-1`;
  assert.ok(host.commands.some((argv) => argv.join(" ") === `mount -t ext4 -o defaults ${device} ${mounted()}`));
});

test("gives up a disk that does not appear within half a minute, five times", async () => {
  const bench = iscsiBench(attachedName(9));
  const device = `/dev/disk/by-path/ip-${portal}-iscsi-${iqn}-lun-9`;
  const event = await refused(bench, own({ lun: 9 }), 30_000);
  assert.ok(event.endsWith(`last err seen:\nTimed out waiting for device at path ${device} after 30s`), event);
  assert.deepEqual(await left(bench), nothing);
});

test("maps the disk of a block volume for each pod, and ends the session with the last", async () => {
  const bench = bound({ volumeMode: "Block" });
  const { host, initiator } = bench;
  const device = [{ name: "data", devicePath: "/dev/v" }];
  const pod = (uid: string) =>
    podWith([claimed], { containers: [aContainer("c", { volumeDevices: device })] }, { uid });
  const stage = bench.start();
  await stage.mount(pod("uid-1"), never);
  await stage.mount(pod("uid-2"), never);
  const directory = `${base}/volumeDevices/iface-default/${portal}-${iqn}-lun-1`;
  const link = `${rootDir}/pods/uid-1/volumeDevices/kubernetes.io~iscsi/pv`;
  assert.equal(await host.fs.readlink(link), "/dev/sda1");
  assert.deepEqual((await left(bench)).loops, [`${directory}/uid-1`, `${directory}/uid-2`]);
  await stage.unmount("uid-1", never);
  assert.equal(initiator.sessions.length, 1);
  const next = bench.start();
  await next.recover(never);
  await next.unmount("uid-2", never);
  assert.deepEqual(await left(bench), nothing);
});

test("writes the kubelet's record of the disk before the first login", async () => {
  const bench = iscsiBench(attachedName());
  let record = "";
  const path = `${mounted()}/iscsi.json`;
  bench.initiator.multipath = true;
  bench.initiator.hangs = () => {
    const isWritten = bench.host.files.changes.some((one) => one.kind === "write" && one.path === path);
    if (isWritten && record === "") record = bench.host.files.text(path);
    return false;
  };
  await bench.start().mount(podWith([own({ portals: ["10.0.0.2"] })]), never);
  assert.deepEqual(JSON.parse(record), {
    VolName: "v",
    Portals: [portal, "10.0.0.2:3260"],
    Iqn: iqn,
    Lun: "1",
    InitIface: "default",
    Iface: "default",
    InitiatorName: "",
    MetricsProvider: null,
  });
});

test("a crash at any call of iscsiadm, at start or at the end, leaves nothing once the next process has removed the pod", async () => {
  const source = { portals: ["10.0.0.2"], initiatorName: "iqn.2026-01.dev.graftlet:me" };
  const whole = iscsiBench(attachedName());
  whole.initiator.multipath = true;
  const one = whole.start();
  await one.mount(podWith([own(source)]), never);
  await one.unmount("uid-1", never);
  const calls = whole.initiator.calls.length;
  assert.ok(calls > 15, String(calls));
  for (let last = 1; last <= calls; last += 1) {
    const bench = iscsiBench(attachedName());
    bench.initiator.multipath = true;
    bench.initiator.hangs = (count) => count > last;
    const stage = bench.start();
    const dead = new AbortController();
    const living = (async () => {
      await stage.mount(podWith([own(source)]), dead.signal);
      await stage.unmount("uid-1", dead.signal);
    })().catch(() => undefined);
    await bench.clock.advance(20);
    dead.abort();
    stage.stop();
    await bench.clock.advance(20);
    await living;
    bench.initiator.hangs = undefined;
    const next = bench.start();
    await next.recover(never);
    await next.unmount("uid-1", never);
    await bench.clock.advance(10_000);
    assert.deepEqual(await left(bench), nothing, `after call ${last} of ${calls}`);
  }
});

test("refuses values that are no portal, IQN, interface or LUN, naming the field", async () => {
  const cases: readonly (readonly [Partial<NonNullable<Volume["iscsi"]>>, string])[] = [
    [{ targetPortal: "../x" }, 'iscsi.targetPortal "../x" is not an address with an optional port'],
    [{ targetPortal: "-p" }, 'iscsi.targetPortal "-p" is not an address with an optional port'],
    [{ portals: ["a b"] }, 'iscsi.portals "a b" is not an address with an optional port'],
    [{ iqn: "iqn.2026-01.x:../../y" }, 'iscsi.iqn "iqn.2026-01.x:../../y" is not a name of an iSCSI node'],
    [{ iscsiInterface: "a/b" }, 'iscsi.iscsiInterface "a/b" is not a name of an interface'],
    [{ initiatorName: "me" }, 'iscsi.initiatorName "me" is not a name of an iSCSI node'],
    [{ lun: 256 }, "iscsi.lun 256 is not a number from 0 to 255"],
  ];
  for (const [source, why] of cases) {
    const bench = iscsiBench(attachedName());
    assert.equal(
      await refused(bench, own(source)),
      `Pod Warning FailedMount: MountVolume.SetUp failed for volume "v" : ${why}`,
    );
    assert.deepEqual([bench.initiator.calls, await left(bench)], [[], nothing]);
  }
});
