import assert from "node:assert/strict";
import { test } from "node:test";
import type { PersistentVolume, Volume } from "../../../src/objects.ts";
import { never } from "../../fakes/signals.ts";
import { type Bench, directoryOf, podWith, volumeBench } from "./volume-bench.ts";

const own = (source: NonNullable<Volume["nfs"]>): Volume => ({ name: "v", nfs: source });
const data: Volume = { name: "data", persistentVolumeClaim: { claimName: "data" } };
const export_ = { server: "files.example", path: "/srv" };
const mounts = ({ host }: Bench) => host.commands.filter(([name]) => name === "mount").map((argv) => argv.join(" "));
const unmounts = ({ host }: Bench) => host.commands.filter(([name]) => name === "umount").map((argv) => argv.join(" "));

/** Bench with a claim on an NFS export. */
function bound(spec: NonNullable<PersistentVolume["spec"]> = {}): Bench {
  const bench = volumeBench();
  const metadata = { name: "data", namespace: "default", uid: "u" };
  bench.claims.set("data", { metadata, spec: { volumeName: "pv" }, status: { phase: "Bound" } });
  const whole = { claimRef: metadata, volumeMode: "Filesystem", nfs: export_, ...spec };
  bench.volumes.set("pv", { metadata: { name: "pv" }, spec: whole });
  return bench;
}

/** A program that never ends, like one that waits for a server. */
const waits = ({ clock, host }: Bench, name: string, forgives: readonly string[] = []) =>
  host.program(name, (args, { killed }) => {
    if (!forgives.includes(args[0] ?? ""))
      return clock.sleep(1_000_000_000, killed).then(
        () => 0,
        () => 137,
      );
    host.files.unmount(args.at(-1) ?? "");
    return 0;
  });

test("an inline NFS volume is mounted once, and unmounted with the pod", async () => {
  const bench = volumeBench();
  const stage = bench.start();
  await stage.mount(podWith([own({ ...export_, readOnly: true })]), never);
  const at = directoryOf("nfs");
  assert.deepEqual(stage.mounted("uid-1").get("v"), {
    hostPath: at,
    readOnly: true,
    persistent: { name: "v", plugin: "kubernetes.io/nfs", isDevice: false, space: "remote" },
  });
  assert.deepEqual(mounts(bench), [`mount -t nfs -o ro files.example:/srv ${at}`]);
  const next = bench.start();
  await next.mount(podWith([own({ ...export_, readOnly: true })]), never);
  assert.equal(mounts(bench).length, 1);
  await next.unmount("uid-1", never);
  await next.removePodDirectory("uid-1", never);
  assert.deepEqual(unmounts(bench), [`umount ${at}`]);
  assert.deepEqual(bench.host.files.mounted(), []);
});

test("passes sorted mount options without duplicates; an IPv6 server gets brackets", async () => {
  const nfs = { server: "fd00::1", path: "/" };
  const bench = bound({ nfs, mountOptions: ["soft", "nfsvers=4.2", "soft"] });
  await bench
    .start()
    .mount(podWith([{ ...data, persistentVolumeClaim: { claimName: "data", readOnly: true } }]), never);
  assert.deepEqual(mounts(bench), [`mount -t nfs -o nfsvers=4.2,ro,soft [fd00::1]:/ ${directoryOf("nfs", "pv")}`]);
});

test("rejects an invalid server and a relative path, naming the field", async () => {
  const refused: readonly (readonly [server: string, path: string, why: string])[] = [
    ["-o", "/srv", 'nfs.server "-o" is not a host name or an IP address'],
    ["--bind", "/srv", 'nfs.server "--bind" is not a host name or an IP address'],
    ["one,two", "/srv", 'nfs.server "one,two" is not a host name or an IP address'],
    ["one two", "/srv", 'nfs.server "one two" is not a host name or an IP address'],
    ["/etc", "/srv", 'nfs.server "/etc" is not a host name or an IP address'],
    ["", "/srv", 'nfs.server "" is not a host name or an IP address'],
    ["files.example", "-x", 'nfs.path "-x" is not an absolute path'],
    ["files.example", "", 'nfs.path "" is not an absolute path'],
  ];
  for (const [server, path, why] of refused) {
    const bench = volumeBench();
    const giveUp = new AbortController();
    const mounting = bench.start().mount(podWith([own({ server, path })]), giveUp.signal);
    await bench.clock.advance(100);
    giveUp.abort();
    await assert.rejects(mounting);
    assert.deepEqual(bench.events, [`Pod Warning FailedMount: MountVolume.SetUp failed for volume "v" : ${why}`]);
    assert.deepEqual(mounts(bench), []);
  }
});

test("accepts every server name and address that the API server accepts", async () => {
  for (const [server, written] of [
    ["files.example", "files.example"],
    ["files_1", "files_1"],
    ["10.0.0.1", "10.0.0.1"],
    ["fe80::1%eth0", "[fe80::1%eth0]"],
    ["[fd00::1]", "[fd00::1]"],
  ] as const) {
    const bench = volumeBench();
    await bench.start().mount(podWith([own({ server, path: "/-x" })]), never);
    assert.deepEqual(mounts(bench), [`mount -t nfs ${written}:/-x ${directoryOf("nfs")}`]);
  }
});

test("without mount options, passes no -o; a failure is reported in the kubelet's words and retried cleanly", async () => {
  const bench = bound();
  const { host, clock, events } = bench;
  const words =
    "mount: bad option; for several filesystems (e.g. nfs, cifs) you might need a /sbin/mount.<type> helper program.";
  host.program("mount", (_args, { stderr }) => {
    stderr.write(`${words}\n`);
    return 32;
  });
  const giveUp = new AbortController();
  const mounting = bench.start().mount(podWith([data]), giveUp.signal);
  await clock.advance(100);
  giveUp.abort();
  await assert.rejects(mounting);
  const at = directoryOf("nfs", "pv");
  assert.deepEqual(events, [
    `Pod Warning FailedMount: MountVolume.SetUp failed for volume "pv" : mount failed: exit status 32\nMounting command: mount\nMounting arguments: -t nfs files.example:/srv ${at}\nOutput: ${words}`,
  ]);
  assert.equal(host.files.tree(at.slice(0, at.lastIndexOf("/"))).length, 0, "the directory is gone");
});

test("an unresponsive server delays only its own pod, at start and end", async () => {
  const bench = bound();
  const { clock, host } = bench;
  const stage = bench.start();
  await stage.mount(podWith([data]), never);
  waits(bench, "mount");
  const slow = stage.mount(podWith([own(export_)], {}, { uid: "uid-2", name: "slow" }), never).catch(() => undefined);
  await clock.advance(0);
  const plain = podWith([{ name: "empty", emptyDir: {} }], {}, { uid: "uid-3", name: "plain" });
  await stage.mount(plain, never);
  await stage.unmount("uid-3", never);

  waits(bench, "umount", ["-f"]);
  const ending = stage.unmount("uid-1", never);
  await clock.advance(59_000);
  assert.equal(host.files.mounted().length, 1);
  await clock.advance(1_000);
  await ending;
  const at = directoryOf("nfs", "pv");
  assert.deepEqual(unmounts(bench), [`umount ${at}`, `umount -f ${at}`]);
  assert.deepEqual(host.files.mounted(), []);
  await clock.advance(70_000);
  await slow;
  assert.ok(
    bench.events.some((event) => event.includes("FailedMount")),
    "the mount is given up after two minutes",
  );
});

test("force-unmounts volumes of a dead server after the pod's other mounts", async () => {
  const bench = bound();
  const { clock, host } = bench;
  const stage = bench.start();
  const memory = (name: string): Volume => ({ name, emptyDir: { medium: "Memory" } });
  await stage.mount(podWith([data, memory("one"), memory("two")]), never);
  const at = directoryOf("nfs", "pv");
  host.program("umount", async (args, { killed }) => {
    if (args.includes(at) && args[0] !== "-f")
      return clock.sleep(1_000_000, killed).then(
        () => 0,
        () => 137,
      );
    for (const path of args) if (path !== "-f") host.files.unmount(path);
    return 0;
  });
  const ending = stage.unmount("uid-1", never);
  await clock.advance(0);
  assert.deepEqual(
    host.files.mounted().map(({ path }) => path),
    [at],
  );
  await clock.advance(60_000);
  await ending;
  assert.deepEqual(host.files.mounted(), []);
});
