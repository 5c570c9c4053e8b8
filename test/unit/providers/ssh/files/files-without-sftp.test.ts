import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import {
  appendFileSync,
  mkdirSync,
  mkdtempSync,
  realpathSync,
  renameSync,
  rmSync,
  statfsSync,
  statSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { shellFiles } from "../../../../../providers/ssh/files/files-without-sftp.ts";
import { prelude } from "../../../../../providers/ssh/shell/shell.ts";
import { commandError } from "../../../../../providers/ssh/shell/system-errors.ts";
import { never } from "../../../../fakes/signals.ts";

/** Files of a directory of this machine, by its shell. */
function filesOf(t: TestContext) {
  const root = realpathSync(mkdtempSync(join(tmpdir(), "graftlet-files-")));
  t.after(() => rmSync(root, { recursive: true }));
  const files = shellFiles(async (path, script, { maxBytes = 65_536 }) => {
    const input = `${prelude()}\n{ ${script}\n} </dev/null\n`;
    const { status, stdout, stderr } = spawnSync("/bin/sh", [], { input, maxBuffer: 2 ** 24 });
    if (status !== 0) throw commandError(path, stderr.toString());
    return stdout.subarray(0, maxBytes);
  });
  const at = (name: string) => join(root, name);
  return { files, at, open: (name: string, noFollow = false) => files.open(at(name), noFollow, never) };
}

test("reads any part of a large file, and nothing beyond its end", async (t) => {
  const { at, open } = filesOf(t);
  const data = Buffer.from(Array.from({ length: 1_500_000 }, (_, index) => (index * 7) % 251));
  writeFileSync(at("it's $(big)\n"), data, { mode: 0o640 });
  await using file = await open("it's $(big)\n");
  for (const [from, length] of [
    [0, 10],
    [4_095, 2],
    [4_096, 4_096],
    [1_000_001, 99_999],
    [1_499_990, 100],
    [1_500_000, 10],
    [9_000_000, 10],
    [7, 0],
  ] as const)
    assert.ok((await file.read(from, length)).equals(data.subarray(from, from + length)), `${length} from ${from}`);
  const most = await file.read(3, data.length);
  assert.ok(most.length > 65_536 && most.equals(data.subarray(3, 3 + most.length)), `${most.length}`);
  const { kind, size, mode, inode } = await file.stat();
  assert.deepEqual([kind, size, mode, inode], ["file", data.length, 0o640, statSync(at("it's $(big)\n")).ino]);
  await file.close();
  await assert.rejects(file.read(0, 1), { code: "failed_precondition" });
});

test("goes on with the same file when it grows, shrinks, or is renamed in its directory", async (t) => {
  const { at, open } = filesOf(t);
  writeFileSync(at("0.log"), "one");
  await using file = await open("0.log", true);
  appendFileSync(at("0.log"), "two");
  assert.equal((await file.read(3, 10)).toString(), "two");
  renameSync(at("0.log"), at("0.log.1"));
  writeFileSync(at("0.log"), "another");
  assert.equal((await file.read(0, 10)).toString(), "onetwo");
  renameSync(at("0.log.1"), at(".hidden"));
  assert.equal((await file.stat()).size, 6);
  truncateSync(at(".hidden"), 2);
  assert.equal((await file.read(0, 10)).toString(), "on");
  rmSync(at(".hidden"));
  await assert.rejects(file.read(0, 10), { code: "not_found" });
  await assert.rejects(file.stat(), { code: "not_found" });
});

test("opens regular files only, and with noFollow no link in any part", async (t) => {
  const { files, at, open } = filesOf(t);
  mkdirSync(at("directory"));
  writeFileSync(at("directory/file"), "x");
  symlinkSync("directory", at("way"));
  symlinkSync("directory/file", at("link"));
  spawnSync("mkfifo", [at("fifo")]);
  for (const name of ["directory", "fifo"]) await assert.rejects(open(name), { code: "failed_precondition" }, name);
  for (const name of ["way/file", "link"])
    await assert.rejects(open(name, true), { code: "failed_precondition" }, name);
  await assert.rejects(open("none"), { code: "not_found" });
  await using followed = await open("link");
  rmSync(at("link"));
  symlinkSync("/etc/passwd", at("link"));
  assert.equal((await followed.read(0, 10)).toString(), "x");
  // A link in place of the directory leads to another file.
  renameSync(at("directory"), at("away"));
  mkdirSync(at("elsewhere"));
  writeFileSync(at("elsewhere/file"), "secret");
  symlinkSync("elsewhere", at("directory"));
  await assert.rejects(followed.read(0, 10), { code: "not_found" });
  assert.equal(await files.realpath(at("way/../elsewhere/file"), never), at("elsewhere/file"));
});

test("resolves links, and measures file systems", async (t) => {
  const { files, at } = filesOf(t);
  symlinkSync("no where\n", at("link"));
  assert.equal(await files.readlink(at("link"), never), "no where\n");
  await assert.rejects(files.readlink(at("none"), never), { code: "not_found" });
  await assert.rejects(files.readlink(at(""), never), { code: "invalid_argument" });
  await assert.rejects(files.realpath(at("link"), never), { code: "not_found" });
  writeFileSync(at("end\n"), "");
  assert.equal(await files.realpath(at("end\n"), never), at("end\n"));
  const { capacityBytes, inodes } = await files.fileSystemInfo(at("end\n"), never);
  const expected = statfsSync(at(""));
  assert.deepEqual([capacityBytes, inodes], [expected.blocks * expected.bsize, expected.files]);
  await assert.rejects(files.fileSystemInfo(at("none"), never), { code: "not_found" });
});
