import assert from "node:assert/strict";
import { test } from "node:test";
import { parseEntries, parseStat } from "../../../../../providers/ssh/files/file-info.ts";

test("parses the output of stat", () => {
  assert.deepEqual(parseStat("89a4 1 2 1484 55 2026-11-21 08:02:19.927550756 +0130\n"), {
    kind: "file",
    mode: 0o4644,
    uid: 1,
    gid: 2,
    size: 1484,
    inode: 55,
    modifiedAt: Date.parse("2026-11-21T06:32:19.927Z"),
  });
  assert.equal(parseStat("41ed 0 0 0 1 2026-11-21 08:02:19.000000000 +0000").kind, "directory");
  assert.equal(parseStat("a1ff 0 0 0 1 2026-11-21 08:02:19.000000000 +0000").kind, "symlink");
  assert.throws(() => parseStat("stat: command not found"), { code: "unknown" });
});

test("parses directory entries with any name", () => {
  assert.deepEqual(parseEntries("/d", Buffer.from("fa\nb\0d.d\0l \0pp\0ss\0cc\0bb\0")), [
    { name: "a\nb", kind: "file" },
    { name: ".d", kind: "directory" },
    { name: " ", kind: "symlink" },
    { name: "p", kind: "fifo" },
    { name: "s", kind: "socket" },
    { name: "c", kind: "characterDevice" },
    { name: "b", kind: "blockDevice" },
  ]);
  assert.deepEqual(parseEntries("/d", Buffer.alloc(0)), []);
});

test("rejects a directory with more than 100,000 entries", () => {
  assert.equal(parseEntries("/d", Buffer.from("fa\0".repeat(100_000))).length, 100_000);
  assert.throws(() => parseEntries("/d", Buffer.from("fa\0".repeat(100_001))), {
    code: "resource_exhausted",
    message: "/d has more than 100000 entries",
  });
});
