import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdir, mkdtemp, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { test } from "node:test";
import { createLogger } from "../../../src/lib/log.ts";
import { applyFSGroup } from "../../../src/volumes/persistent/apply-fs-group.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { fakeHost } from "../../fakes/host.ts";
import { aPod } from "../../fakes/pods.ts";
import { never } from "../../fakes/signals.ts";

/** A machine with the local shell, and replacement programs first in its PATH. */
async function machineWith(programs: Readonly<Record<string, string>>) {
  const directory = await mkdtemp(join(tmpdir(), "graftlet-ownership-"));
  for (const [name, script] of Object.entries(programs))
    await writeFile(join(directory, name), `#!/bin/sh\n${script}\n`, { mode: 0o755 });
  const clock = fakeClock();
  const host = fakeHost({ clock });
  host.program("sh", async (args, { stderr }) => {
    const child = spawn("/bin/sh", args, { env: { PATH: `${directory}:${process.env["PATH"] ?? ""}` } });
    const exited = new Promise<number>((resolve) => child.on("exit", (code) => resolve(code ?? 1)));
    const [complaints] = await Promise.all([text(child.stderr), text(child.stdout)]);
    stderr.write(complaints);
    return exited;
  });
  const lines: string[] = [];
  const log = createLogger(0, { write: (line) => void lines.push(line) });
  const give = (tree: string) =>
    applyFSGroup(
      { host, clock, log, events: { event: () => assert.fail("an event") } },
      aPod({ securityContext: { fsGroup: 4321 } }),
      tree,
      never,
    );
  return { directory, lines, give, [Symbol.asyncDispose]: () => rm(directory, { recursive: true }) };
}

const refuse = 'echo "not permitted" >&2; exit 1';

test("uses a file system that refuses chown unchanged, with one log line", async () => {
  await using machine = await machineWith({ chown: refuse, chmod: refuse });
  const tree = join(machine.directory, "tree");
  await mkdir(join(tree, "sub"), { recursive: true });
  for (const name of ["plain", "sub/one", "sub/two"]) await writeFile(join(tree, name), "", { mode: 0o600 });
  await writeFile(join(tree, "program"), "", { mode: 0o4700 });
  await machine.give(tree);
  assert.equal(machine.lines.length, 1);
  assert.match(machine.lines[0] ?? "", /"complaints":\["not permitted","not permitted"\]/);
});

test("sets modes even if the group cannot be changed", async () => {
  await using machine = await machineWith({ chown: refuse });
  const tree = join(machine.directory, "tree");
  await mkdir(tree, { mode: 0o700 });
  await writeFile(join(tree, "plain"), "", { mode: 0o600 });
  await machine.give(tree);
  const modes = await Promise.all([tree, join(tree, "plain")].map(async (path) => (await stat(path)).mode & 0o7777));
  assert.deepEqual(modes, [0o2770, 0o660]);
});

test("fails if the tree cannot be walked", async () => {
  await using machine = await machineWith({ chown: refuse });
  await assert.rejects(machine.give(join(machine.directory, "absent")), {
    message: /^cannot change the group of files to 4321: find: .*absent/,
  });
});
