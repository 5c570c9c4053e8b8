import assert from "node:assert/strict";
import { test } from "node:test";
import { never } from "../fakes/signals.ts";
import { waitFor } from "../harness/wait.ts";
import type { Bench } from "./host.ts";
import { within } from "./waiting.ts";
import { argvOf } from "../harness/argv.ts";

/** Reading files, and being told of their changes. */
export function fileContract({ current, folder }: Bench): void {
  test("readFile returns the whole file, and refuses one that is too large, a directory, a FIFO or missing", async () => {
    const { host, makeFifo } = current();
    const dir = await folder();
    const data = Buffer.alloc(200_000, "é");
    await host.fs.apply([{ kind: "write", path: `${dir}/f`, data }]);
    assert.ok((await host.fs.readFile(`${dir}/f`)).equals(data));
    assert.equal((await host.fs.readFile(`${dir}/f`, { maxBytes: data.length })).length, data.length);
    await assert.rejects(host.fs.readFile(`${dir}/f`, { maxBytes: data.length - 1 }), { code: "resource_exhausted" });
    await assert.rejects(host.fs.readFile(dir), { code: "failed_precondition" });
    await makeFifo(`${dir}/fifo`);
    await assert.rejects(within(host.fs.readFile(`${dir}/fifo`)), { code: "failed_precondition" });
    await assert.rejects(host.fs.readFile(`${dir}/none`), { code: "not_found" });
    await assert.rejects(host.fs.readFile(`${dir}/f`, { signal: AbortSignal.abort() }), { code: "cancelled" });
  });

  test("open reads at any offset, and an empty buffer at the end of the file", async () => {
    const { host } = current();
    const dir = await folder();
    await host.fs.apply([{ kind: "write", path: `${dir}/f`, data: "0123456789" }]);
    await using file = await host.fs.open(`${dir}/f`);
    assert.equal((await file.read(3, 4)).toString(), "3456");
    assert.equal((await file.read(8, 100)).toString(), "89");
    assert.equal((await file.read(10, 100)).length, 0);
    const memory = Buffer.alloc(16);
    assert.equal((await file.read(3, 4, undefined, memory)).toString(), "3456");
    assert.equal((await file.read(8, 16, undefined, memory)).toString(), "89");
    const { size, kind } = await file.stat();
    assert.deepEqual({ size, kind }, { size: 10, kind: "file" });
  });

  test("open never blocks: FIFO, socket and directory are failed_precondition at once; noFollow refuses links", async () => {
    const { host, makeFifo, makeSocket } = current();
    const dir = await folder();
    await makeFifo(`${dir}/fifo`);
    await makeSocket(`${dir}/socket`);
    await host.fs.apply([
      { kind: "write", path: `${dir}/f`, data: "x" },
      { kind: "symlink", path: `${dir}/link`, target: "f" },
    ]);
    for (const path of [`${dir}/fifo`, `${dir}/socket`, dir])
      await assert.rejects(within(host.fs.open(path)), { code: "failed_precondition" }, path);
    await assert.rejects(host.fs.open(`${dir}/link`, { noFollow: true }), { code: "failed_precondition" });
    await host.fs.apply([{ kind: "symlink", path: `${dir}/way`, target: "." }]);
    await assert.rejects(host.fs.open(`${dir}/way/f`, { noFollow: true }), { code: "failed_precondition" });
    await using straight = await host.fs.open(`${dir}/f`, { noFollow: true });
    assert.equal((await straight.read(0, 10)).toString(), "x");
    await using followed = await host.fs.open(`${dir}/link`);
    assert.equal((await followed.read(0, 10)).toString(), "x");
  });

  test("readEnd returns the end of a regular file, follows no link, and blocks on nothing", async () => {
    const { host, makeFifo } = current();
    const dir = await folder();
    const data = Buffer.concat([Buffer.alloc(100_000, 1), Buffer.from([0, 255, 10])]);
    await host.fs.apply([
      { kind: "write", path: `${dir}/it's a $(file)`, data },
      { kind: "write", path: `${dir}/empty`, data: "" },
      { kind: "symlink", path: `${dir}/link`, target: "empty" },
    ]);
    const end = (name: string, bytes: number) => host.fs.readTail(`${dir}/${name}`, bytes);
    assert.ok((await end("it's a $(file)", 5)).equals(data.subarray(-5)));
    assert.ok((await end("it's a $(file)", 200_000)).equals(data));
    assert.equal((await end("empty", 10)).length, 0);
    await makeFifo(`${dir}/fifo`);
    for (const name of ["link", "fifo", "."])
      await assert.rejects(within(end(name, 10)), { code: "failed_precondition" }, name);
    await assert.rejects(end("none", 10), { code: "not_found" });
  });

  test("list returns names and kinds of a directory's entries without following links", async () => {
    const { host, makeFifo, makeSocket } = current();
    const dir = await folder();
    await makeFifo(`${dir}/fifo`);
    await makeSocket(`${dir}/socket`);
    await host.fs.apply([
      { kind: "mkdir", path: `${dir}/d` },
      { kind: "write", path: `${dir}/f`, data: "" },
      { kind: "write", path: `${dir}/.hidden`, data: "" },
      { kind: "symlink", path: `${dir}/l`, target: "d" },
    ]);
    const kinds = Object.fromEntries((await host.fs.list(dir)).map(({ name, kind }) => [name, kind]));
    const files = { f: "file", ".hidden": "file", l: "symlink", fifo: "fifo", socket: "socket" };
    assert.deepEqual(kinds, { d: "directory", ...files });
    assert.deepEqual(await host.fs.list(`${dir}/l`), []);
    await assert.rejects(host.fs.list(`${dir}/none`), { code: "not_found" });
  });

  test("stat follows links, lstat does not; stat of a dangling link is not_found", async () => {
    const { host } = current();
    const dir = await folder();
    await host.fs.apply([
      { kind: "write", path: `${dir}/f`, data: "four", mode: 0o4640 },
      { kind: "symlink", path: `${dir}/l`, target: `${dir}/f` },
      { kind: "symlink", path: `${dir}/dangling`, target: "nowhere" },
    ]);
    const { kind, mode, uid, gid, size, inode } = await host.fs.stat(`${dir}/l`);
    assert.deepEqual({ kind, mode, size }, { kind: "file", mode: 0o4640, size: 4 });
    assert.deepEqual([uid, gid], [(await host.fs.lstat(`${dir}/f`)).uid, (await host.fs.lstat(`${dir}/f`)).gid]);
    assert.equal((await host.fs.lstat(`${dir}/l`)).kind, "symlink");
    assert.notEqual((await host.fs.lstat(`${dir}/l`)).inode, inode);
    assert.equal((await host.fs.lstat(`${dir}/dangling`)).kind, "symlink");
    await assert.rejects(host.fs.stat(`${dir}/dangling`), { code: "not_found" });
  });

  test("readlink returns a link's text, realpath the resolved path", async () => {
    const { host } = current();
    const dir = await folder();
    await host.fs.apply([
      { kind: "mkdir", path: `${dir}/d/e`, parents: true },
      { kind: "symlink", path: `${dir}/l`, target: "d/../d/e" },
    ]);
    assert.equal(await host.fs.readlink(`${dir}/l`), "d/../d/e");
    assert.equal(await host.fs.realpath(`${dir}/l/..`), `${dir}/d`);
    await assert.rejects(host.fs.readlink(`${dir}/d`), { code: "invalid_argument" });
    await assert.rejects(host.fs.realpath(`${dir}/none`), { code: "not_found" });
  });

  test("reports circular links as an error", async () => {
    const { host } = current();
    const dir = await folder();
    await host.fs.apply([
      { kind: "symlink", path: `${dir}/a`, target: "b" },
      { kind: "symlink", path: `${dir}/b`, target: "a" },
    ]);
    await assert.rejects(within(host.fs.stat(`${dir}/a`)), { code: "failed_precondition" });
  });

  test("fileSystemInfo returns the space of the file system that holds a path", async () => {
    const { host } = current();
    const dir = await folder();
    const { capacityBytes, availableBytes, usedBytes, inodes, inodesFree } = await host.fs.fileSystemInfo(dir);
    assert.ok(
      capacityBytes > 0 && availableBytes >= 0 && availableBytes + usedBytes <= capacityBytes,
      `${availableBytes} and ${usedBytes} of ${capacityBytes}`,
    );
    const { stdout } = await host.run(argvOf(["df", "-P", "-k", dir]), { timeoutMs: 10_000 });
    const told = 1024 * Number(stdout.trim().split(/\s+/).at(-4));
    assert.ok(Math.abs(usedBytes - told) < capacityBytes / 50, `df tells ${told}, not ${usedBytes}`);
    assert.ok(inodesFree <= inodes, `${inodesFree} of ${inodes}`);
    await assert.rejects(host.fs.fileSystemInfo("/no/such/path"), { code: "not_found" });
  });

  test("watch reports files created, changed and removed in a directory, and ends when its signal aborts", async () => {
    const { host } = current();
    if (!host.watch) return;
    const dir = await folder();
    const stop = new AbortController();
    const seen: string[] = [];
    const watching = (async () => {
      for await (const path of host.watch?.(dir, stop.signal) ?? []) seen.push(path);
    })();
    for (const change of [
      { kind: "write", path: `${dir}/f`, data: "1" },
      { kind: "chmod", path: `${dir}/f`, mode: 0o600 },
      { kind: "remove", path: `${dir}/f` },
    ] as const) {
      seen.length = 0;
      await host.fs.apply([change]);
      await waitFor(`a hint of ${change.kind}`, () => seen.includes(`${dir}/f`), { timeoutMs: 30_000, everyMs: 5 });
    }
    stop.abort();
    await within(watching);
  });

  test("rejects watching a missing path", async () => {
    const { host } = current();
    const dir = await folder();
    const iterator = host.watch?.(`${dir}/none`, never)[Symbol.asyncIterator]();
    if (iterator) await assert.rejects(within(iterator.next()), { code: "not_found" });
  });

  test("the target's clock is close to the local one, and its boot ID is stable", async () => {
    const { host } = current();
    assert.ok(Math.abs(await host.clock.offsetMs()) < 24 * 3_600_000);
    assert.match(await host.clock.bootId(), /^[0-9a-z-]+$/);
    assert.equal(await host.clock.bootId(), await host.clock.bootId());
  });
}
