import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { chmod, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { promisify } from "node:util";
import { findProgramScript } from "../../../../../providers/docker/port-forward/programs.ts";

/** The program found on a machine whose socat does this when it relays. */
async function foundWith(t: TestContext, relays: string): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), "graftlet-socat-"));
  t.after(() => rm(folder, { recursive: true }));
  const socat = join(folder, "socat");
  await writeFile(socat, `#!/bin/sh\n[ "$1" = -V ] && exit\n${relays}\n`);
  await chmod(socat, 0o755);
  const env = { ...process.env, PATH: `${folder}:/usr/bin:/bin` };
  return (await promisify(execFile)("sh", ["-c", findProgramScript()], { env })).stdout.trim();
}

test("accepts a socat that forwards the end of the server's data", async (t) => {
  assert.equal(await foundWith(t, "exec >/dev/null; cat >/dev/null"), "socat");
});

test("rejects a socat that does not forward the end of the server's data", async (t) => {
  assert.equal(await foundWith(t, "cat"), "perl");
});
