import assert from "node:assert/strict";
import { test } from "node:test";
import { writeAtomically } from "../../../src/volumes/atomic-writer.ts";
import type { VolumeContent } from "../../../src/volumes/content.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { fakeHost } from "../../fakes/host.ts";
import { never } from "../../fakes/signals.ts";

const directory = "/v";
const contentOf = (files: Readonly<Record<string, string>>, mode = 0o644): VolumeContent =>
  new Map(Object.entries(files).map(([path, text]) => [path, { data: Buffer.from(text), mode }]));

async function writer() {
  const clock = fakeClock(Date.UTC(2026, 0, 31, 12, 0, 0));
  const host = fakeHost({ clock });
  await host.fs.apply([{ kind: "mkdir", path: directory }]);
  return {
    host,
    clock,
    write: (content: VolumeContent) => writeAtomically({ host, clock }, directory, content, never),
  };
}

test("writes files into a timestamped directory behind ..data, and links each top-level name through it", async () => {
  const { host, write } = await writer();
  assert.equal(await write(contentOf({ a: "1", "d/e/f": "2", "d/g": "3" })), true);
  const version = await host.fs.readlink("/v/..data");
  assert.match(version, /^\.\.2026_01_31_12_00_00\.\d+$/);
  assert.equal((await host.fs.lstat(`/v/${version}`)).mode, 0o755);
  assert.deepEqual(
    (await host.fs.list(directory)).map(({ name }) => name).sort(),
    ["..data", version, "a", "d"].sort(),
  );
  assert.equal(await host.fs.readlink("/v/a"), "..data/a");
  assert.equal(await host.fs.readlink("/v/d"), "..data/d");
  assert.equal((await host.fs.readFile("/v/d/e/f")).toString(), "2");
});

test("a top-level link belongs to the owner of its file", async () => {
  const { host, write } = await writer();
  const content: VolumeContent = new Map([
    ["token", { data: Buffer.from("token"), mode: 0o600, uid: 1000 }],
    ["ca.crt", { data: Buffer.from("ca"), mode: 0o644 }],
  ]);
  await write(content);
  assert.equal((await host.fs.lstat("/v/token")).uid, 1000);
  assert.equal((await host.fs.lstat("/v/ca.crt")).uid, 0);
});

test("writes nothing if nothing changed, even after a restart", async () => {
  const { host, clock, write } = await writer();
  await write(contentOf({ a: "1", "d/g": "3" }));
  const before = host.files.changes.length;
  assert.equal(await write(contentOf({ "d/g": "3", a: "1" })), false);
  assert.equal(await writeAtomically({ host, clock }, directory, contentOf({ a: "1", "d/g": "3" }), never), false);
  assert.equal(host.files.changes.length, before);
});

test("a changed content or mode creates a new version and removes the old one", async () => {
  const { host, clock, write } = await writer();
  await write(contentOf({ a: "1" }));
  for (const next of [contentOf({ a: "2" }), contentOf({ a: "2" }, 0o400)]) {
    const old = await host.fs.readlink("/v/..data");
    await clock.advance(1000);
    assert.equal(await write(next), true);
    await assert.rejects(host.fs.lstat(`/v/${old}`), { code: "not_found" });
  }
  assert.equal((await host.fs.readFile("/v/a")).toString(), "2");
  assert.equal((await host.fs.stat("/v/a")).mode, 0o400);
});

test("readers see the old files or the new ones after each single change", async () => {
  const { host, clock, write } = await writer();
  await write(contentOf({ a: "old", b: "old" }));
  await clock.advance(1000);
  const seen: string[] = [];
  host.files.onChange(async () => {
    seen.push(`${(await host.fs.readFile("/v/a")).toString()} ${(await host.fs.readFile("/v/b")).toString()}`);
  });
  await write(contentOf({ a: "new", b: "new" }));
  assert.deepEqual([...new Set(seen)], ["old old", "new new"]);
});

test("removes links of removed names, and keeps directories of other mounts", async () => {
  const { host, clock, write } = await writer();
  await write(contentOf({ a: "1", "d/e": "2" }));
  await host.fs.apply([{ kind: "mkdir", path: "/v/nested" }]);
  await clock.advance(1000);
  await write(contentOf({ b: "1" }));
  const names = (await host.fs.list(directory)).map(({ name }) => name).filter((name) => !name.startsWith(".."));
  assert.deepEqual(names.sort(), ["b", "nested"]);
});

test("a write interrupted at any change is repaired by the next one", async () => {
  const content = contentOf({ a: "2", "d/e": "2" });
  const countOf = async () => {
    const { host, clock, write } = await writer();
    await write(contentOf({ a: "1", c: "1" }));
    await clock.advance(1000);
    const before = host.files.changes.length;
    await write(content);
    return host.files.changes.length - before;
  };
  const total = await countOf();
  for (let broken = 0; broken < total; broken++) {
    const { host, clock, write } = await writer();
    await write(contentOf({ a: "1", c: "1" }));
    await clock.advance(1000);
    let left = broken;
    host.files.onChange(() => {
      if (left-- === 0) throw new Error("killed");
    });
    await assert.rejects(write(content), /killed/);
    host.files.onChange(undefined);
    await clock.advance(1000);
    await write(content);
    const version = await host.fs.readlink("/v/..data");
    assert.deepEqual(
      (await host.fs.list(directory)).map(({ name }) => name).sort(),
      ["..data", version, "a", "d"].sort(),
      `broken at change ${broken}`,
    );
    assert.equal((await host.fs.readFile("/v/d/e")).toString(), "2");
  }
});

test("a volume without files still has ..data", async () => {
  const { host, write } = await writer();
  assert.equal(await write(new Map()), true);
  assert.match(await host.fs.readlink("/v/..data"), /^\.\./);
  assert.equal(await write(new Map()), false);
});

test("files belong to the specified user", async () => {
  const { host, write } = await writer();
  const content: VolumeContent = new Map([["token", { data: Buffer.from("t"), mode: 0o600, uid: 1000 }]]);
  await write(content);
  assert.equal((await host.fs.stat("/v/token")).uid, 1000);
  assert.equal(await write(content), false);
});
