import assert from "node:assert/strict";
import type { Duplex } from "node:stream";
import { setImmediate as turn } from "node:timers/promises";
import { test } from "node:test";
import { dockerExec, createExec, startExec } from "../../../../../providers/docker/exec/process.ts";
import { type RawCall, rawEngine } from "../raw-engine.ts";

const wish = { containerId: "c", argv: ["true"], tty: false, stdin: false, stdout: true, stderr: true };

test("notices the end of a silent command, even before a listener is attached", async () => {
  let daemon: Duplex | undefined;
  await using engine = await rawEngine(({ path, request, response }) => {
    if (path === "/containers/c/exec") return void response.end('{"Id":"e"}');
    if (path === "/exec/e/json") return void response.end('{"Pid":7,"Running":false,"ExitCode":3}');
    assert.equal(path, "/exec/e/start");
    daemon = request.socket;
    daemon.write("HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n");
  });
  const { signal } = new AbortController();
  engine.parts.facts.containers.set("c", { imageRef: "busybox" });
  const id = await createExec(engine.parts, wish, signal);
  const running = await startExec(engine.parts, { id, tty: false }, signal);
  // An HTTP client has already requested more, too.
  running.connection.read(0);
  daemon?.end();
  await turn();
  await running.output({}, AbortSignal.timeout(3000));
  assert.equal(await running.ended(signal), 3);
  running.connection.destroy();
});

test("an unresponsive daemon does not count as a command timeout", async () => {
  const asked = Promise.withResolvers<RawCall>();
  await using engine = await rawEngine(asked.resolve);
  engine.parts.facts.containers.set("c", { imageRef: "busybox" });
  const { signal } = new AbortController();
  const outcome = assert.rejects(dockerExec(engine.parts).execSync("c", ["true"], 1, signal), { code: "unknown" });
  const { response } = await asked.promise;
  await engine.clock.advance(5_000);
  response.writeHead(500).end('{"message":"it thaws"}');
  await outcome;
});
