import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { pipeline } from "node:stream/promises";
import { test } from "node:test";
import type { RunCommand } from "../../../src/seams/runtime.ts";
import { dialSpdy, dialWebSocket, startServer } from "./clients.ts";

const request = { stdin: true, stdout: true, stderr: false, tty: false };
const block = randomBytes(1 << 15);
const blocks = 2048;
/** Maximum number of bytes in transit between client, command and back. */
const underWay = 1 << 20;

const cat: RunCommand = async ({ stdin, stdout }) => {
  assert.ok(stdin && stdout);
  await pipeline(stdin, stdout);
  return 0;
};

/** Numbered blocks. */
function numbered(index: number): Buffer {
  const bytes = Buffer.from(block);
  bytes.writeUInt32BE(index, 0);
  return bytes;
}

function expected(): string {
  const hash = createHash("sha256");
  for (let index = 0; index < blocks; index++) hash.update(numbered(index));
  return hash.digest("hex");
}

/** Hashes the received data, and counts the bytes in transit. */
function watch() {
  const hash = createHash("sha256");
  let [sent, come, most] = [0, 0, 0];
  return {
    send(bytes: Buffer): Buffer {
      sent += bytes.length;
      most = Math.max(most, sent - come);
      return bytes;
    },
    take(bytes: Buffer) {
      come += bytes.length;
      hash.update(bytes);
    },
    check() {
      assert.equal(hash.digest("hex"), expected());
      assert.ok(most < underWay, `${most} bytes were under way`);
    },
  };
}

test("64 MiB in each direction over SPDY arrive unchanged in bounded memory", async () => {
  await using server = startServer();
  const client = await dialSpdy(server.command(request, cat));
  const error = await client.open({ streamtype: "error" });
  const stdin = await client.open({ streamtype: "stdin" });
  const stdout = await client.open({ streamtype: "stdout" });
  const watched = watch();
  stdout.onData = watched.take;
  for (let index = 0; index < blocks; index++) await stdin.write(watched.send(numbered(index)));
  await stdin.end();
  assert.equal(await error.text, '{"status":"Success"}');
  watched.check();
});

test("64 MiB in each direction over WebSocket arrive unchanged in bounded memory", async () => {
  await using server = startServer();
  const client = await dialWebSocket(server.command(request, cat), "v5.channel.k8s.io");
  const watched = watch();
  client.ws.removeAllListeners("message");
  client.ws.on("message", (message: Buffer) => {
    if (message[0] === 1) watched.take(message.subarray(1));
  });
  for (let index = 0; index < blocks; index++)
    await new Promise((resolve) =>
      client.ws.send(Buffer.concat([Buffer.from([0]), watched.send(numbered(index))]), { binary: true }, resolve),
    );
  client.send(255, Buffer.from([0]));
  assert.equal(await client.closed, 1000);
  watched.check();
});
