import assert from "node:assert/strict";
import { chmod, mkdtemp, rm, stat } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { localHost } from "../../../../providers/local/host.ts";
import { systemClock } from "../../../../src/lib/clock.ts";

const modeOf = async (path: string) => (await stat(path)).mode & 0o7777;

test("creates a directory with exactly its mode, regardless of the umask and its parent", async (t) => {
  const dir = await mkdtemp(join(tmpdir(), "graftlet-mkdir-"));
  t.after(() => rm(dir, { recursive: true }));
  const made = async (name: string, mode?: number) => {
    await localHost({ clock: systemClock() }).fs.apply([
      { kind: "mkdir", path: join(dir, name), ...(mode !== undefined && { mode }) },
    ]);
    return modeOf(join(dir, name));
  };
  const before = process.umask(0o077);
  try {
    assert.deepEqual([await made("a"), await made("b", 0o777), await made("c", 0o1777)], [0o755, 0o777, 0o1777]);
    process.umask(0);
    assert.deepEqual([await made("d"), await made("e", 0o700)], [0o755, 0o700]);
    // Directories inherit the set-group-ID bit of their parent.
    await chmod(dir, 0o2755);
    assert.equal(await made("f"), 0o755);
  } finally {
    process.umask(before);
  }
});
