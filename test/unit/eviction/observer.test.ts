import assert from "node:assert/strict";
import { test } from "node:test";
import { createObserver } from "../../../src/eviction/observer.ts";
import { ImageFsInfoResponse } from "../../../src/gen/cri.ts";
import { createLogger } from "../../../src/lib/log.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { fakeHost } from "../../fakes/host.ts";
import { never } from "../../fakes/signals.ts";

async function target(cgroupVersion: 1 | 2 = 2) {
  const clock = fakeClock();
  const host = fakeHost({ clock });
  const world = { devices: { "/root": "/dev/a", "/images": "/dev/b" } as Record<string, string>, runtimeAway: false };
  /** Where the runtime says that its images and layers are. */
  const told = { images: "/images", layers: "/images" as string | undefined, asked: 0 };
  const lines: string[] = [];
  host.files.put("/proc/meminfo", { data: "MemTotal: 1000 kB\nMemFree: 900 kB\nInactive(file): 0 kB\n" });
  host.files.put("/proc/loadavg", { data: "0.00 0.01 0.05 3/245 12345\n" });
  host.files.put("/root/file");
  host.files.put("/images/file");
  host.program("df", async ([, ...paths], { stdout }) => {
    const known = paths.flatMap((path) => world.devices[path] ?? []);
    stdout.write(`Filesystem 1024-blocks\n${known.map((device) => `${device} 1 1 1 1% /\n`).join("")}`);
    return known.length === paths.length ? 0 : 1;
  });
  const observe = createObserver({
    host,
    images: {
      async imageFsInfo() {
        if (world.runtimeAway) throw new Error("the runtime is away");
        told.asked += 1;
        const images = { fsId: { mountpoint: told.images } };
        const layers = told.layers === undefined ? {} : { fsId: { mountpoint: told.layers } };
        return ImageFsInfoResponse.fromPartial({ imageFilesystems: [images], containerFilesystems: [layers] });
      },
    },
    rootDir: "/root",
    layout: async () => ({ driver: "cgroupfs", root: "/", perQos: true }),
    cgroupVersion,
    maxPid: 1000,
    clock,
    log: createLogger(0, { write: (line: string) => void lines.push(line) }),
  });
  return { clock, host, world, told, lines, observe: () => observe(never) };
}

test("observes every signal, except allocatable memory of a cgroup without a limit", async () => {
  const { host, observe } = await target();
  const { observations, disks, problem } = await observe();
  assert.deepEqual(observations.get("memory.available"), { available: 900 * 1024, capacity: 1000 * 1024 });
  assert.deepEqual(observations.get("pid.available"), { available: 755, capacity: 1000 });
  assert.ok(observations.has("nodefs.available") && observations.has("imagefs.inodesFree"));
  assert.ok(observations.has("containerfs.available"));
  assert.ok(!observations.has("allocatableMemory.available"));
  assert.deepEqual([disks, problem], [{ dedicatedImageFs: true, splitContainerFs: false }, undefined]);
  const pods = "/sys/fs/cgroup/kubepods";
  host.files.put(`${pods}/memory.current`, { data: "600\n" });
  host.files.put(`${pods}/memory.stat`, { data: "anon 1\ninactive_file 200\n" });
  host.files.put(`${pods}/memory.max`, { data: "max\n" });
  assert.ok(!(await observe()).observations.has("allocatableMemory.available"));
  host.files.put(`${pods}/memory.max`, { data: "1000\n" });
  assert.deepEqual((await observe()).observations.get("allocatableMemory.available"), {
    available: 600,
    capacity: 1000,
  });
});

test("learns all devices from one df, or one for each place if one does not exist", async () => {
  const { host, observe } = await target();
  const runs = () => host.commands.filter(([program]) => program === "df").length;
  assert.deepEqual((await observe()).disks, { dedicatedImageFs: true, splitContainerFs: false });
  assert.equal(runs(), 1);
  const other = await target();
  Object.assign(other.told, { layers: "/missing" });
  assert.deepEqual((await other.observe()).disks, { dedicatedImageFs: true, splitContainerFs: true });
});

test("v1: reads allocatable memory from the memory hierarchy", async () => {
  const { host, observe } = await target(1);
  const pods = "/sys/fs/cgroup/memory/kubepods";
  host.files.put(`${pods}/memory.usage_in_bytes`, { data: "600\n" });
  host.files.put(`${pods}/memory.stat`, { data: "inactive_file 1\ntotal_inactive_file 200\n" });
  host.files.put(`${pods}/memory.limit_in_bytes`, { data: "9223372036854771712\n" });
  assert.ok(!(await observe()).observations.has("allocatableMemory.available"));
  host.files.put(`${pods}/memory.limit_in_bytes`, { data: "1000\n" });
  assert.equal((await observe()).observations.get("allocatableMemory.available")?.available, 600);
});

test("if the runtime is unreachable, omits only its file systems, logs that once, and retries", async () => {
  const { world, lines, observe } = await target();
  world.runtimeAway = true;
  await observe();
  const { observations, disks, problem } = await observe();
  assert.ok(observations.has("memory.available") && !observations.has("imagefs.available"));
  assert.deepEqual([disks, problem, lines.length], [undefined, undefined, 1]);
  world.runtimeAway = false;
  assert.ok((await observe()).observations.has("imagefs.available"));
});

test("asks the runtime for its file systems until it knows where its layers are, and then no more", async () => {
  const { told, observe } = await target();
  Object.assign(told, { images: "/root", layers: undefined });
  assert.equal((await observe()).disks?.dedicatedImageFs, false);
  Object.assign(told, { images: "/images", layers: "/images" });
  assert.equal((await observe()).disks?.dedicatedImageFs, true);
  await observe();
  assert.equal(told.asked, 2);
});

test("a hanging file system blocks only until its timeout, and is not queried again while it hangs", async () => {
  const { clock, host, observe } = await target();
  await observe();
  let asked = 0;
  const { fileSystemInfo } = host.fs;
  const hang = Promise.withResolvers<void>();
  host.fs.fileSystemInfo = async (path, signal) => {
    if (path !== "/images") return fileSystemInfo(path, signal);
    asked += 1;
    await hang.promise;
    return fileSystemInfo(path, signal);
  };
  const first = observe();
  await clock.advance(5_000);
  const { observations } = await first;
  assert.ok(observations.has("nodefs.available") && !observations.has("imagefs.available"));
  const before = asked;
  assert.ok(!(await observe()).observations.has("imagefs.available"));
  assert.equal(asked, before);
  hang.resolve();
  await clock.advance(0);
  assert.ok((await observe()).observations.has("imagefs.available"));
});

test("fails for a target without memory figures", async () => {
  const { host, observe } = await target();
  await host.fs.apply([{ kind: "remove", path: "/proc/meminfo" }]);
  const { observations, problem } = await observe();
  assert.match(problem ?? "", /\/proc\/meminfo/);
  assert.ok(observations.has("nodefs.available"));
});
