import assert from "node:assert/strict";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import ssh2, { type ClientChannel, type Connection as ServerConnection, type ServerChannel } from "ssh2";
import { readSshConfig } from "../../../../../providers/ssh/config.ts";
import { channelStream } from "../../../../../providers/ssh/connection/channel-stream.ts";
import { openConnection, fromCallback } from "../../../../../providers/ssh/connection/connection.ts";
import { fingerprintOf } from "../../../../../providers/ssh/connection/fingerprint.ts";
import { type PeerChannels, peerOf } from "../../../../../providers/ssh/connection/ssh2-peer.ts";
import { systemClock } from "../../../../../src/lib/clock.ts";
import { never } from "../../../../fakes/signals.ts";
import { listen } from "../../../../harness/ports.ts";
import { sshKey } from "../../../../harness/ssh-keys.ts";

/** A connection to a server in this process, and the server's end of it. */
async function connected(t: TestContext) {
  const key = sshKey("rsa");
  const hostKey = key.privateKey.export({ type: "pkcs1", format: "pem" });
  const dir = mkdtempSync(join(tmpdir(), "graftlet-limits-"));
  const passwordFile = join(dir, "password");
  writeFileSync(passwordFile, "any", { mode: 0o600 });
  const there = Promise.withResolvers<ServerConnection>();
  const server = new ssh2.Server({ hostKeys: [hostKey] }, (connection) => {
    connection.on("error", () => undefined);
    connection.on("authentication", (ctx) => ctx.accept());
    connection.on("request", (accept) => accept?.());
    connection.on("tcpip", (accept) => {
      const channel = accept();
      channel.pipe(channel);
    });
    there.resolve(connection);
  });
  const config = readSshConfig({
    host: "127.0.0.1",
    port: await listen(server),
    user: "root",
    passwordFile,
    hostKeyFingerprints: [fingerprintOf(key.wire)],
  });
  const connection = await openConnection(config, { clock: systemClock() }, never);
  t.after(() => {
    connection.close();
    server.close();
    rmSync(dir, { recursive: true });
  });
  return { connection, there: await there.promise };
}

test("refuses a channel that no handler accepts", { timeout: 10_000 }, async (t) => {
  const { there } = await connected(t);
  await assert.rejects(
    new Promise((_resolve, reject) =>
      there.openssh_forwardOutStreamLocal("constructor", (error) => error && reject(error)),
    ),
    /Channel open failure/,
  );
});

/** Opens channels from the server's side, as fast as they are answered. @returns the seconds that this takes. */
async function openFromServer(there: ServerConnection, socketPath: string, count: number): Promise<number> {
  const began = performance.now();
  let left = count;
  const lane = async () => {
    while (left-- > 0) {
      const channel = await fromCallback<ServerChannel>((done) =>
        there.openssh_forwardOutStreamLocal(socketPath, done),
      );
      channel.end();
      channel.resume();
      await once(channel, "close");
    }
  };
  await Promise.all(Array.from({ length: 500 }, lane));
  return (performance.now() - began) / 1000;
}

test("a target whose pods open more channels than are read per second is delayed, and keeps its link", {
  timeout: 60_000,
}, async (t) => {
  const { connection, there } = await connected(t);
  const path = "/run/service.sock";
  connection.client.on("unix connection", (_info, accept) => {
    const stream = channelStream(accept() as ClientChannel, connection);
    stream.on("error", () => undefined);
    stream.resume();
    stream.end();
  });
  await new Promise<void>((resolve, reject) => {
    connection.client.openssh_forwardInStreamLocal(path, (error) => (error ? reject(error) : resolve()));
  });
  const seconds = await openFromServer(there, path, 6_000);
  assert.equal(connection.lost.aborted, false, String(connection.lost.reason));
  // 2,000 at once and 2,000 per second.
  assert.ok(seconds > 1.9, `${seconds} s`);
});

test("refusing a channel stays cheap while two thousand others are open", { timeout: 60_000 }, async (t) => {
  const { connection } = await connected(t);
  const { channels } = peerOf(connection.client) as unknown as { readonly channels: PeerChannels & { add(): number } };
  for (let open = 0; open < 2_048; open += 1) channels.add();
  const began = process.cpuUsage();
  for (let refused = 0; refused < 20_000; refused += 1) channels.remove(channels.add());
  const { user, system } = process.cpuUsage(began);
  assert.ok(user + system < 1_000_000, `${(user + system) / 1000} ms`);
});

test("a target that opens many unexpected channels loses its link", {
  timeout: 60_000,
}, async (t) => {
  const { connection, there } = await connected(t);
  const flood = async () => {
    while (!connection.lost.aborted)
      await new Promise((resolve) => there.openssh_forwardOutStreamLocal("/nobody", resolve));
  };
  void Array.from({ length: 100 }, flood);
  await new Promise((resolve) => connection.onLost(() => resolve(undefined)));
  assert.match(String(connection.lost.reason), /opened more than 5000 channels that graftlet does not expect/);
});

test("counts channels until they have been read to the end", { timeout: 10_000 }, async (t) => {
  const { connection } = await connected(t);
  const open = () => fromCallback((done) => connection.client.forwardOut("127.0.0.1", 0, "10.0.0.1", 80, done));
  const streams = [channelStream(await open(), connection), channelStream(await open(), connection)];
  assert.equal(connection.channels(), 2);
  for (const stream of streams) stream.end("said");
  const [read] = streams;
  assert.ok(read);
  for await (const chunk of read) assert.equal(String(chunk), "said");
  while (connection.channels() > 1) await new Promise(setImmediate);
  streams[1]?.destroy();
  while (connection.channels() > 0) await new Promise(setImmediate);
});

test("three hundred channels share the connection's window limit without losing data", {
  timeout: 60_000,
}, async (t) => {
  const { connection } = await connected(t);
  const data = Buffer.alloc(100_000, "x");
  const echo = async (): Promise<number> => {
    const channel = await fromCallback((done) => connection.client.forwardOut("127.0.0.1", 0, "10.0.0.1", 80, done));
    const stream = channelStream(channel, connection);
    stream.end(data);
    let bytes = 0;
    for await (const chunk of stream) bytes += (chunk as Buffer).length;
    return bytes;
  };
  const arrived = await Promise.all(Array.from({ length: 300 }, echo));
  assert.deepEqual(new Set(arrived), new Set([data.length]));
});

test("resuming a reader after the server has hung up does not throw", { timeout: 10_000 }, async (t) => {
  const { connection, there } = await connected(t);
  const channel = await fromCallback((done) => connection.client.forwardOut("127.0.0.1", 0, "10.0.0.1", 80, done));
  const stream = channelStream(channel, connection);
  stream.write(Buffer.alloc(600_000));
  // The channel is not read, so the echoed data fills the window.
  await new Promise((resolve) => setTimeout(resolve, 300));
  const inside = connection.client as unknown as { readonly _sock: { emit(event: string): void } };
  there.end();
  inside._sock.emit("end");
  stream.resume();
  stream.write("more");
  await new Promise((resolve) => connection.onLost(() => resolve(undefined)));
});
