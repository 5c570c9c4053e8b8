import assert from "node:assert/strict";
import { mkdir, mkdtemp, rename, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { localHost } from "../../../providers/local/host.ts";
import { inodes } from "../../../src/host/cgroup-commands.ts";
import { systemClock } from "../../../src/lib/clock.ts";

const { signal } = new AbortController();
const near = localHost({ clock: systemClock() });
const far = { ...near, fs: { lstatAll: undefined } };

async function temporaryDirectory(t: TestContext): Promise<string> {
  const root = await mkdtemp(join(tmpdir(), "graftlet-inodes-"));
  t.after(() => rm(root, { recursive: true }));
  return root;
}

test("the file API and the command report the same inode numbers, and omit a missing directory", async (t) => {
  const root = await temporaryDirectory(t);
  const [one, two, none] = [join(root, "one"), join(root, "two"), join(root, "none")] as const;
  await mkdir(one);
  await mkdir(two);
  const looked = await inodes(near, [one, none, two], signal);
  assert.deepEqual([...looked.keys()], [one, two]);
  assert.deepEqual(await inodes(far, [one, none, two], signal), looked);
});

test("detects by inode number that a directory was removed and re-created", async (t) => {
  const root = await temporaryDirectory(t);
  const path = join(root, "pod");
  await mkdir(path);
  const before = await inodes(near, [path], signal);
  await rename(path, join(root, "former"));
  await mkdir(path);
  assert.notDeepEqual(await inodes(near, [path], signal), before);
});
