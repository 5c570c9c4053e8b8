import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { once } from "node:events";
import { chmod, mkdtemp, rm, writeFile } from "node:fs/promises";
import { type AddressInfo, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { promisify } from "node:util";
import { localHost } from "../../../../../providers/local/host.ts";
import { findProgramScript, relayProgram } from "../../../../../providers/docker/port-forward/programs.ts";
import { startPortForwardRelay } from "../../../../../providers/docker/port-forward/relay.ts";
import { systemClock } from "../../../../../src/lib/clock.ts";
import { never } from "../../../../fakes/signals.ts";
import { argvOf } from "../../../../harness/argv.ts";

/** The program found on a machine whose socat does this when it relays. */
async function foundWith(t: TestContext, relays: string, more: Readonly<Record<string, string>> = {}): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), "graftlet-socat-"));
  t.after(() => rm(folder, { recursive: true }));
  const socat = join(folder, "socat");
  await writeFile(socat, `#!/bin/sh\n[ "$1" = -V ] && exit\n${relays}\n`);
  await chmod(socat, 0o755);
  const env = { ...process.env, PATH: `${folder}:/usr/bin:/bin`, ...more };
  return (await promisify(execFile)("sh", ["-c", findProgramScript()], { env })).stdout.trim();
}

test("accepts a socat that forwards the end of the server's data", async (t) => {
  assert.equal(await foundWith(t, "exec >/dev/null; cat >/dev/null"), "socat");
});

test("rejects a socat that does not forward the end of the server's data", async (t) => {
  assert.equal(await foundWith(t, "cat"), "perl");
});

test("prefers programs that tell where their output ends if sudo keeps it open", async (t) => {
  const good = "exec >/dev/null; cat >/dev/null";
  assert.equal(await foundWith(t, good, { SUDO_UID: "1000" }), "perl");
});

for (const name of ["perl", "python3"])
  test(`${name} passes on the server's end though sudo keeps its output open, and then what the client still sends`, async () => {
    const said = Buffer.alloc(5_000_000, "x");
    const heard: Buffer[] = [];
    const server = createServer({ allowHalfOpen: true }, (socket) => {
      socket.on("data", (block) => heard.push(Buffer.from(block))).end(said);
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    const program = relayProgram(name);
    assert.ok(program);
    const { port } = server.address() as AddressInfo;
    // As sudo does, the shell keeps its descriptors until the command ends.
    const kept = argvOf(["sh", "-c", '"$@"; exit', "sh", ...program.argv("127.0.0.1", port)]);
    const clock = systemClock();
    const host = localHost({ clock });
    try {
      const connection = await startPortForwardRelay({ host, clock }, kept, program.connected, never);
      let bytes = 0;
      connection.on("data", (block: Buffer) => (bytes += block.length));
      await once(connection, "end", { signal: AbortSignal.timeout(10_000) });
      assert.equal(bytes, said.length);
      connection.end("goodbye");
      await connection.ended;
      assert.equal(Buffer.concat(heard).toString(), "goodbye");
    } finally {
      server.close();
    }
  });
