import assert from "node:assert/strict";
import { test } from "node:test";
import { findSockets } from "../../../src/plugins/sockets.ts";
import type { DirectoryEntry, HostFs } from "../../../src/seams/host.ts";
import { never } from "../../fakes/signals.ts";

const signal = never;

/** File system whose directories contain what `entries` returns. Counts the calls. */
function filesWith(entries: (path: string) => readonly DirectoryEntry[]) {
  const counted = { lists: 0, looks: 0, atOnce: 0, mostAtOnce: 0 };
  const fs = {
    async list(path: string) {
      counted.lists += 1;
      return [...entries(path)];
    },
    async lstat() {
      counted.looks += 1;
      counted.atOnce += 1;
      counted.mostAtOnce = Math.max(counted.mostAtOnce, counted.atOnce);
      await new Promise(setImmediate);
      counted.atOnce -= 1;
      return { kind: "socket", mode: 0, uid: 0, gid: 0, size: 0, modifiedAt: 1, inode: 2 };
    },
  } as unknown as HostFs;
  return { fs, counted };
}

test("finds sockets in subdirectories", async () => {
  const { fs } = filesWith((path) =>
    path === "/r"
      ? [
          { name: "a.sock", kind: "socket" },
          { name: "below", kind: "directory" },
        ]
      : [{ name: "b.sock", kind: "socket" }],
  );
  const found = await findSockets(fs, "/r", signal);
  assert.deepEqual([...found.sockets.keys()], ["/r/a.sock", "/r/below/b.sock"]);
  assert.deepEqual(found.directories, ["/r", "/r/below"]);
  assert.equal(found.truncated, false);
});

test("descends at most eight levels", async () => {
  const { fs, counted } = filesWith(() => [{ name: "deeper", kind: "directory" }]);
  const found = await findSockets(fs, "/r", signal);
  assert.equal(counted.lists, 8);
  assert.equal(found.truncated, true);
});

test("lists at most 64 directories", async () => {
  const many = Array.from({ length: 1_000 }, (_, at): DirectoryEntry => ({ name: `d${at}`, kind: "directory" }));
  const { fs, counted } = filesWith(() => many);
  const found = await findSockets(fs, "/r", signal);
  assert.equal(counted.lists, 64);
  assert.equal(found.directories.length, 64);
  assert.equal(found.truncated, true);
});

test("checks at most 256 sockets, sixteen concurrently", async () => {
  const many = Array.from({ length: 5_000 }, (_, at): DirectoryEntry => ({ name: `${at}.sock`, kind: "socket" }));
  const { fs, counted } = filesWith(() => many);
  const found = await findSockets(fs, "/r", signal);
  assert.equal(found.sockets.size, 256);
  assert.equal(counted.looks, 256);
  assert.equal(counted.mostAtOnce, 16);
  assert.equal(found.truncated, true);
});
