import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { entriesOf, fileEntry, gzipped, settledTar, tarOf } from "../../../tools/release/archive.ts";
import { ownLayers } from "../../../tools/release/image.ts";

const date = 1_795_572_282;

test("writes files in order, as root, with one date and identical bytes each time", async () => {
  const files = [fileEntry("a/b", "two", 0o755, date), fileEntry("a/c", "", 0o644, date)];
  const tar = await tarOf(files);
  assert.deepEqual(await tarOf(files), tar);
  const read = (await entriesOf(tar)).map(({ header: { name, mode, uid, gid, mtime }, data }) => [
    name,
    mode,
    uid,
    gid,
    mtime?.getTime(),
    data.toString(),
  ]);
  assert.deepEqual(read, [
    ["a/b", 0o755, 0, 0, date * 1000, "two"],
    ["a/c", 0o644, 0, 0, date * 1000, ""],
  ]);
  assert.deepEqual(await gzipped(tar), await gzipped(tar));
});

test("builds the same image layer at different times, with the commit's date", async () => {
  const layer = (built: number) =>
    tarOf([
      { header: { name: "usr", type: "directory", mode: 0o755, mtime: new Date(built * 1000) }, data: Buffer.alloc(0) },
      {
        header: { name: "usr/node", mode: 0o755, mtime: new Date(built * 1000), pax: { mtime: `${built}.5` } },
        data: Buffer.from("node"),
      },
      { header: { name: "usr/link", type: "symlink", linkname: "node", mtime: new Date(7000) }, data: Buffer.alloc(0) },
    ]);
  const settled = await settledTar(await layer(date - 60), date);
  assert.deepEqual(await settledTar(await layer(date + 3600), date), settled);
  const read = (await entriesOf(settled)).map(({ header: { name, type, mode, linkname, mtime, pax }, data }) => [
    name,
    type,
    mode,
    linkname,
    (mtime?.getTime() ?? 0) / 1000,
    pax,
    data.toString(),
  ]);
  assert.deepEqual(read, [
    ["usr", "directory", 0o755, null, date, null, ""],
    ["usr/node", "file", 0o755, null, date, { path: "usr/node" }, "node"],
    ["usr/link", "symlink", 0o644, "node", date, null, ""],
  ]);
});

test("separates a Dockerfile's last stage from its base image", () => {
  assert.equal(ownLayers("FROM a AS b\nRUN c\nRUN d\n\nFROM e\nCOPY f /\n  COPY\nUSER 1\nRUN g\n"), 2);
  assert.equal(ownLayers(readFileSync(join(import.meta.dirname, "..", "..", "..", "Dockerfile"), "utf8")), 3);
});
