import assert from "node:assert/strict";
import { test } from "node:test";
import {
  createMountLister,
  isMountPoint,
  listMounts,
  mountTmpfs,
  mountsBelow,
  mountedContext,
  parseMounts,
  supportsSelinuxLabels,
  shareDirectory,
  unmount,
} from "../../../src/host/mounts.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { fakeHost } from "../../fakes/host.ts";
import { never } from "../../fakes/signals.ts";

const table = [
  "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw",
  "30 22 0:25 / /proc rw - proc proc rw",
  "40 22 0:44 / /var/lib/kubelet/pods/u/volumes/kubernetes.io~secret/s rw,relatime shared:9 master:2 - tmpfs tmpfs rw,size=64k",
  "41 40 8:1 /srv/a\\040b /var/lib/kubelet/pods/u/volumes/kubernetes.io~secret/s/with\\040blank rw - ext4 /dev/disk\\134x rw",
  "42 22 0:45 / /var/lib/kubelet/pods/u2/volumes/v rw - tmpfs tmpfs rw",
  "",
].join("\n");

test("parses mountinfo with optional fields and octal escapes", () => {
  assert.deepEqual(parseMounts(table)[2], {
    path: "/var/lib/kubelet/pods/u/volumes/kubernetes.io~secret/s",
    device: "0:44",
    root: "/",
    shared: true,
    fsType: "tmpfs",
    source: "tmpfs",
  });
  assert.deepEqual(parseMounts(table)[3], {
    path: "/var/lib/kubelet/pods/u/volumes/kubernetes.io~secret/s/with blank",
    device: "8:1",
    root: "/srv/a b",
    shared: false,
    fsType: "ext4",
    source: "/dev/disk\\x",
  });
  assert.equal(parseMounts(table).length, 5);
});

test("reads the SELinux label with which a path is mounted, with or without quotes", async () => {
  const table = [
    "22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw,seclabel",
    '30 22 8:2 / /v/quoted rw - ext4 /dev/sdb rw,context="system_u:object_r:f_t:s0:c1,c2",discard',
    "31 22 8:3 / /v/plain rw - ext4 /dev/sdc rw,context=system_u:object_r:f_t:s0",
    "32 22 8:4 / /v/other rw - ext4 /dev/sdd rw,rootcontext=system_u:object_r:f_t:s0",
  ].join("\n");
  const host = fakeHost({ clock: fakeClock() });
  const fs = { ...host.fs, realpath: async (path: string) => path, readFile: async () => Buffer.from(table) };
  const contexts = ["/v/quoted", "/v/plain", "/v/other", "/v/absent"].map((path) =>
    mountedContext({ ...host, fs }, path, never),
  );
  assert.deepEqual(await Promise.all(contexts), [
    "system_u:object_r:f_t:s0:c1,c2",
    "system_u:object_r:f_t:s0",
    "",
    undefined,
  ]);
});

test("reads SELinux labels from mount or super options of the mount that holds a path", async () => {
  const labelled = [
    "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw,seclabel",
    "30 22 0:50 / /v/nfs/mount rw,relatime - nfs4 server:/ rw,vers=4.2",
    "31 22 8:2 / /v/disk/mount rw,seclabel - xfs /dev/sdb rw",
  ].join("\n");
  const host = fakeHost({ clock: fakeClock() });
  const fs = { ...host.fs, realpath: async (path: string) => path, readFile: async () => Buffer.from(labelled) };
  const takes = (path: string) => supportsSelinuxLabels({ ...host, fs }, path, never);
  assert.deepEqual(await Promise.all(["/v/nfs/mount", "/v/disk/mount", "/v/directory/mount"].map(takes)), [
    false,
    true,
    true,
  ]);
});

test("lists mounts below a directory in unmount order, without siblings with the same prefix", () => {
  const below = mountsBelow(parseMounts(table), "/var/lib/kubelet/pods/u");
  assert.deepEqual(below, [
    "/var/lib/kubelet/pods/u/volumes/kubernetes.io~secret/s/with blank",
    "/var/lib/kubelet/pods/u/volumes/kubernetes.io~secret/s",
  ]);
  assert.deepEqual(mountsBelow(parseMounts(table), "/var/lib/kubelet/pods/u2/volumes/v"), [
    "/var/lib/kubelet/pods/u2/volumes/v",
  ]);
});

async function machine(kernel = "6.1.0") {
  const host = fakeHost({ clock: fakeClock() });
  host.files.put("/proc/sys/kernel/osrelease", { data: `${kernel}\n` });
  await host.fs.apply([
    { kind: "mkdir", path: "/m" },
    { kind: "symlink", path: "/l", target: "m" },
  ]);
  return host;
}

test("mounts a tmpfs with its size, and with noswap if the kernel supports it", async () => {
  const old = await machine("5.10.0");
  await mountTmpfs(old, "/m", { sizeBytes: 4096 });
  assert.deepEqual(old.commands, [["mount", "-t", "tmpfs", "-o", "size=4096", "tmpfs", "/m"]]);
  assert.deepEqual(
    (await listMounts(old)).map(({ path, fsType }) => [path, fsType]),
    [["/m", "tmpfs"]],
  );
  assert.deepEqual([await isMountPoint(old, "/l"), await isMountPoint(old, "/proc")], [true, false]);
  const young = await machine("6.4.0-rc1");
  await mountTmpfs(young, "/m");
  assert.deepEqual(young.commands, [["mount", "-t", "tmpfs", "-o", "noswap", "tmpfs", "/m"]]);
});

test("retries without noswap when the kernel rejects it", async () => {
  const host = await machine("6.8.0");
  host.program("mount", (args) => (args.includes("noswap") ? 32 : 0));
  await mountTmpfs(host, "/m");
  assert.equal(host.commands.length, 2);
});

test("a failed mount has the code permission_denied only if the user may not mount at all", async () => {
  const host = await machine();
  host.program("mount", (_args, { stderr }) => {
    stderr.write("mount: nope\n");
    return 32;
  });
  await assert.rejects(mountTmpfs(host, "/m"), {
    code: "failed_precondition",
    message: "mounting a tmpfs on /m failed: mount: nope",
  });
  host.files.put("/proc/self/status", { data: "Name:\tsh\nCapEff:\t0000000000000000\n" });
  await assert.rejects(mountTmpfs(host, "/m"), { code: "permission_denied" });
});

test("unmounting succeeds for a path that is not mounted, and fails with the path if it is busy", async () => {
  const host = await machine();
  await unmount(host, "/m");
  await mountTmpfs(host, "/m");
  host.program("umount", (_args, { stderr }) => {
    stderr.write("target is busy\n");
    return 32;
  });
  await assert.rejects(unmount(host, "/m"), {
    code: "failed_precondition",
    message: "unmounting /m failed: target is busy",
  });
});

test("shares a directory through its parent mount, its own mount, or a new bind mount", async () => {
  const mounts = [
    ["root shared:1", "/d"],
    ["root", "/d", "mount --bind /d /d", "mount --make-shared /d"],
    ["root", "/l", "mount --bind /d /d", "mount --make-shared /d"],
    ["root d", "/d", "mount --make-shared /d"],
    ["root d shared:2", "/d"],
    ["root shared:1 d", "/d", "mount --make-shared /d"],
  ] as const;
  for (const [table, path, ...commands] of mounts) {
    const host = await machine();
    await host.fs.apply([
      { kind: "mkdir", path: "/d" },
      { kind: "remove", path: "/l" },
      { kind: "symlink", path: "/l", target: "d" },
    ]);
    const optional = (name: string) => new RegExp(`${name} (shared:\\d+)`).exec(table)?.[1] ?? "";
    const lines = [
      `22 1 8:1 / / rw ${optional("root")} - ext4 d rw`,
      ...(/\bd\b/.test(table) ? [`23 22 8:1 / /d rw ${optional("d")} - tmpfs d rw`] : []),
    ];
    const text = `${lines.join("\n").replaceAll("  ", " ")}\n`;
    const readFile: typeof host.fs.readFile = async () => Buffer.from(text);
    await shareDirectory({ ...host, fs: { ...host.fs, readFile } }, path, never);
    assert.deepEqual(
      host.commands.map((argv) => argv.join(" ")),
      commands,
      table,
    );
  }
});

test("reports a directory that cannot be shared", async () => {
  const host = await machine();
  host.program("mount", () => 32);
  await assert.rejects(shareDirectory(host, "/m", never), {
    code: "failed_precondition",
    message: "sharing /m failed: exit code 32",
  });
});

test("concurrent callers share one read of the mount table that starts after their calls", async () => {
  const host = await machine();
  let reads = 0;
  const { fs } = host;
  const counted = {
    ...host,
    fs: { ...fs, readFile: (...given: Parameters<typeof fs.readFile>) => ((reads += 1), fs.readFile(...given)) },
  };
  const list = createMountLister(counted);
  const first = list();
  await mountTmpfs(host, "/m");
  reads = 0;
  const others = await Promise.all(Array.from({ length: 20 }, () => list()));
  for (const mounts of others) assert.ok(mounts.some(({ path }) => path === "/m"));
  assert.ok(reads <= 2, `${reads} reads for twenty who ask`);
  await first;
  await unmount(host, "/m");
  assert.ok(!(await list()).some(({ path }) => path === "/m"));
  assert.equal(await isMountPoint(host, "/m", undefined, list), false);
});
