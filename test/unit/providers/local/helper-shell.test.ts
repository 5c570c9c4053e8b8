import assert from "node:assert/strict";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { localHost } from "../../../../providers/local/host.ts";
import { systemClock } from "../../../../src/lib/clock.ts";
import { script } from "../../../../src/seams/command.ts";

const brief = { brief: true };
/** Prints the ID of the shell that runs it. */
const parent = (file: string) => script('cut -d" " -f4 /proc/$$/stat >"$1"', file);

test("runs brief commands one after another in one shell, with their exit codes and errors", async (t) => {
  const folder = await mkdtemp(join(tmpdir(), "graftlet-brief-"));
  t.after(() => rm(folder, { recursive: true }));
  await using host = localHost({ clock: systemClock() });
  const failing = script("echo 'not here'; echo \"it's \\$1\" >&2; exit 3", "x");
  const answers = await Promise.all([
    host.run(failing, brief),
    host.run(parent(join(folder, "a")), brief),
    host.run(parent(join(folder, "b")), brief),
  ]);
  assert.deepEqual(answers[0], { code: 3, stdout: "", stderr: "it's $1", truncated: false });
  assert.equal(await readFile(join(folder, "a"), "utf8"), await readFile(join(folder, "b"), "utf8"));
});

test("a brief command that hangs is killed, and the next one runs in another shell", async () => {
  await using host = localHost({ clock: systemClock() });
  const hung = host.run(script("sleep 60"), { ...brief, timeoutMs: 100 });
  await assert.rejects(hung, { code: "deadline_exceeded", message: "sh timed out after 100 ms and was killed" });
  assert.equal((await host.run(script("exit 4"), brief)).code, 4);
});

test("a brief command that is aborted is killed, and one aborted before it begins does not run", async (t) => {
  const folder = await mkdtemp(join(tmpdir(), "graftlet-brief-"));
  t.after(() => rm(folder, { recursive: true }));
  await writeFile(join(folder, "seen"), "");
  await using host = localHost({ clock: systemClock() });
  const stop = new AbortController();
  const options = { ...brief, signal: stop.signal };
  const first = host.run(script("sleep 60"), options);
  const second = host.run(script('echo ran >"$1"', join(folder, "seen")), options);
  stop.abort(new Error("enough"));
  await Promise.all([assert.rejects(first, /enough/), assert.rejects(second, /enough/)]);
  assert.equal(await readFile(join(folder, "seen"), "utf8"), "");
});

test("a brief command whose shell is killed fails, and the next one runs in another shell", async () => {
  await using host = localHost({ clock: systemClock() });
  await assert.rejects(host.run(script('read -r line </proc/$$/stat; set -- $line; kill -9 "$4"; sleep 60'), brief), {
    code: "unavailable",
  });
  assert.equal((await host.run(script("exit 5"), brief)).code, 5);
});

test("a command that floods standard error fails, and the next one runs", async () => {
  await using host = localHost({ clock: systemClock() });
  await assert.rejects(host.run(script("head -c 100000 /dev/zero | tr '\\0' x >&2"), brief), {
    code: "resource_exhausted",
  });
  assert.equal((await host.run(script("true"), brief)).code, 0);
});
