import assert from "node:assert/strict";
import { mkdir, mkdtemp, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { systemClock } from "../../../src/lib/clock.ts";
import { localHost } from "../../../providers/local/host.ts";
import { readWithin } from "../../../src/host/read-within.ts";

const { signal } = new AbortController();
let root = "";
before(async () => {
  root = await mkdtemp(join(tmpdir(), "graftlet-within-"));
  await mkdir(join(root, "tree/a"), { recursive: true });
  await mkdir(join(root, "tree-beside"));
  await writeFile(join(root, "tree/a/file"), "inside");
  await writeFile(join(root, "secret"), "outside");
  await writeFile(join(root, "tree-beside/file"), "outside");
  await symlink("a", join(root, "tree/b"));
  await symlink("../secret", join(root, "tree/out"));
  await symlink("..", join(root, "tree/up"));
  await symlink("../tree-beside", join(root, "tree/beside"));
});
after(() => rm(root, { recursive: true }));
const read = (below: string, maxBytes = 100) =>
  readWithin(localHost({ clock: systemClock() }).fs, { base: join(root, "tree"), below, maxBytes }, signal).then(
    String,
  );

test("reads a file inside the tree, even through a link within the tree", async () => {
  assert.deepEqual([await read("a/file"), await read("b/file")], ["inside", "inside"]);
});

test("refuses links that lead out of the tree", async () => {
  for (const below of ["out", "up/secret", "beside/file"]) {
    await assert.rejects(read(below), { code: "failed_precondition" });
  }
});

test("refuses missing, oversized and non-regular files", async () => {
  await assert.rejects(read("none"), { code: "not_found" });
  await assert.rejects(read("a/file", 5), { code: "resource_exhausted" });
  await assert.rejects(read("a"), { code: "failed_precondition" });
});
