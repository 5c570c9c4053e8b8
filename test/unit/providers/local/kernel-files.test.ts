import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { localFs } from "../../../../providers/local/fs.ts";
import { isKernelFile, readKernelFile } from "../../../../providers/local/kernel-files.ts";

test("the kernel's figures are read whole, in one or several pieces", async () => {
  const meminfo = String(await localFs().readFile("/proc/meminfo"));
  assert.match(meminfo, /^MemTotal: +\d+ kB\n[^]*\n$/);
  // Longer than one piece, and no file of the kernel's: the same each time.
  const program = process.execPath;
  assert.ok(readKernelFile(program, 2 ** 30).equals(readFileSync(program)));
});

test("only a node's own figures are read so: no path leads elsewhere", () => {
  for (const path of ["/sys/fs/cgroup/memory/kubepods/memory.stat", "/proc/loadavg"])
    assert.ok(isKernelFile(path), path);
  for (const path of ["/sys/fs/cgroup/../../etc/passwd", "/proc/1/maps", "/proc/meminfo.old", "/var/sys/fs/cgroup/a"])
    assert.ok(!isKernelFile(path), path);
});

test("a missing file, a directory and a file above the limit fail as others do", async () => {
  const { readFile } = localFs();
  await assert.rejects(readFile("/sys/fs/cgroup/none/memory.stat"), { code: "not_found" });
  await assert.rejects(readFile("/sys/fs/cgroup/"), { code: "failed_precondition" });
  await assert.rejects(readFile("/proc/meminfo", { maxBytes: 5 }), { code: "resource_exhausted" });
});
