import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { isKernelFile, readKernelFile } from "../../../../providers/local/kernel-file.ts";
import { localHost } from "../../../../providers/local/host.ts";
import { systemClock } from "../../../../src/lib/clock.ts";

test("reads kernel pseudo-files completely, in one or several chunks", async () => {
  const meminfo = String(await localHost({ clock: systemClock() }).fs.readFile("/proc/meminfo"));
  assert.match(meminfo, /^MemTotal: +\d+ kB\n[^]*\n$/);
  // A regular file, longer than one chunk, with the same content each time.
  const program = process.execPath;
  assert.ok(readKernelFile(program, 2 ** 30).equals(readFileSync(program)));
});

test("accepts only known pseudo-files, and rejects paths that lead elsewhere", () => {
  for (const path of ["/sys/fs/cgroup/memory/kubepods/memory.stat", "/proc/loadavg", "/proc/self/mountinfo"])
    assert.ok(isKernelFile(path), path);
  for (const path of ["/sys/fs/cgroup/../../etc/passwd", "/proc/1/maps", "/proc/meminfo.old", "/var/sys/fs/cgroup/a"])
    assert.ok(!isKernelFile(path), path);
});

test("like HostFs.readFile, fails for a missing file, a directory and a file above the size limit", async () => {
  const { readFile } = localHost({ clock: systemClock() }).fs;
  await assert.rejects(readFile("/sys/fs/cgroup/none/memory.stat"), { code: "not_found" });
  await assert.rejects(readFile("/sys/fs/cgroup/"), { code: "failed_precondition" });
  await assert.rejects(readFile("/proc/meminfo", { maxBytes: 5 }), { code: "resource_exhausted" });
});
