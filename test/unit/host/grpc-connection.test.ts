import assert from "node:assert/strict";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { type ServerHttp2Stream, createServer } from "node:http2";
import type { Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { createGrpcChannel } from "../../../providers/cri/client.ts";
import { localHost } from "../../../providers/local/host.ts";
import { RuntimeServiceService, VersionRequest, VersionResponse } from "../../../src/gen/cri.ts";
import { createGrpcConnection } from "../../../src/host/grpc-connection.ts";
import { systemClock } from "../../../src/lib/clock.ts";
import { connectionPair } from "../../fakes/connection-pair.ts";
import { splice } from "../../../src/streams/port-forward.ts";
import type { Host } from "../../../src/seams/host.ts";
import { never } from "../../fakes/signals.ts";

const clock = systemClock();
const { dial } = localHost({ clock });

/** A server on a Unix socket, whose connections a test may cut. */
async function rig(t: TestContext, answer: (stream: ServerHttp2Stream) => void = () => {}) {
  const folder = mkdtempSync(join(tmpdir(), "graftlet-grpc-"));
  const path = join(folder, "runtime.sock");
  const open = new Set<Socket>();
  const server = createServer();
  server.on("connection", (socket: Socket) => open.add(socket));
  server.on("session", (session) => session.on("error", () => undefined));
  server.on("stream", (stream: ServerHttp2Stream) => {
    stream.on("error", () => undefined);
    answer(stream);
  });
  const cut = () => {
    for (const socket of open) socket.destroy();
    open.clear();
  };
  t.after(() => {
    cut();
    server.close();
    rmSync(folder, { recursive: true, force: true });
  });
  const listen = async () => {
    server.listen(path);
    await once(server, "listening");
  };
  const dials: unknown[] = [];
  const counted: Host["dial"] = (to, signal) => {
    dials.push(to);
    return dial(to, signal);
  };
  return { path, listen, cut, dials, host: { dial: counted } };
}

function answerVersion(stream: ServerHttp2Stream): void {
  const message = VersionResponse.encode(VersionResponse.fromPartial({ version: "v1" })).finish();
  const head = Buffer.alloc(5);
  head.writeUInt32BE(message.length, 1);
  stream.on("wantTrailers", () => stream.sendTrailers({ "grpc-status": "0" }));
  stream.respond({ ":status": 200, "content-type": "application/grpc" }, { waitForTrailers: true });
  stream.end(Buffer.concat([head, message]));
}

const askVersion = (channel: ReturnType<typeof createGrpcChannel>) =>
  channel.call(RuntimeServiceService.version, VersionRequest.create(), never);

test("concurrent callers share one connection, which is reopened after a loss", async (t) => {
  const { path, listen, cut, dials, host } = await rig(t);
  await listen();
  const connection = createGrpcConnection({ host, clock }, path);
  t.after(() => connection.close());
  const [first, second] = await Promise.all([connection.session(never), connection.session(never)]);
  assert.equal(first, second);
  assert.equal(await connection.session(never), first);
  assert.deepEqual(dials, [{ unix: path }]);
  const closed = new Promise((resolve) => first.once("close", resolve));
  cut();
  await closed;
  assert.notEqual(await connection.session(never), first);
  assert.equal(dials.length, 2);
});

test("if one caller aborts, the connection attempt continues for the other callers", async (t) => {
  const { path, listen, dials, host } = await rig(t);
  await listen();
  const connection = createGrpcConnection({ host, clock }, path);
  t.after(() => connection.close());
  const stop = new AbortController();
  const aborted = Promise.resolve(connection.session(stop.signal));
  const other = connection.session(never);
  stop.abort();
  await assert.rejects(aborted, { code: "cancelled" });
  assert.equal((await other).destroyed, false);
  assert.equal(dials.length, 1);
});

test("connection attempts to a missing socket fail in Go's words, a tenth of a second apart", async (t) => {
  const { path, dials, host } = await rig(t);
  const connection = createGrpcConnection({ host, clock }, path);
  const began = clock.monotonic();
  for (let attempt = 0; attempt < 4; attempt += 1)
    await assert.rejects(Promise.resolve(connection.session(never)), {
      code: "unavailable",
      message: `rpc error: code = Unavailable desc = connection error: desc = "transport: Error while dialing: dial unix ${path}: connect: no such file or directory"`,
    });
  assert.equal(dials.length, 4);
  const took = clock.monotonic() - began;
  assert.ok(took >= 295, `took ${took} ms`);
});

test("closing ends the connection attempt in progress and all calls", async (t) => {
  const { path, listen, host } = await rig(t);
  await listen();
  const connecting = createGrpcConnection({ host, clock }, path);
  const attempt = Promise.resolve(connecting.session(never));
  connecting.close();
  await assert.rejects(attempt, { code: "unavailable" });
  const channel = createGrpcChannel({ host, path, requestTimeoutMs: 60_000, clock });
  const call = askVersion(channel);
  setTimeout(() => channel.close(), 50);
  await assert.rejects(call, { code: "unavailable" });
});

/** Connections that are not sockets of this process, as over SSH. */
const overPair: Host["dial"] = async (to, signal) => {
  const far = await dial(to, signal);
  const [near, middle] = connectionPair();
  splice(middle, far, never).catch(() => undefined);
  return near;
};

for (const [kind, through] of [
  ["a socket", dial],
  ["a stream", overPair],
] as const)
  for (const [when, before] of [
    ["before the answer", Buffer.alloc(0)],
    ["within a message", Buffer.from([0, 0, 0, 1, 0, 1])],
  ] as const)
    test(`losing ${kind} ${when} fails the call at once; the next call connects again`, async (t) => {
      let calls = 0;
      const { path, listen, cut } = await rig(t, (stream) => {
        calls += 1;
        if (calls > 1) return answerVersion(stream);
        stream.respond({ ":status": 200, "content-type": "application/grpc" });
        stream.write(before);
        setTimeout(cut, 50);
      });
      await listen();
      const channel = createGrpcChannel({ host: { dial: through }, path, requestTimeoutMs: 60_000, clock });
      t.after(() => channel.close());
      await assert.rejects(askVersion(channel), { code: "unavailable", message: "error reading from server: EOF" });
      assert.equal((await askVersion(channel)).version, "v1");
      assert.equal(calls, 2);
    });

test("repeats a call once if the server refused it unprocessed, but not if the server reset it", async (t) => {
  const refused = 7;
  const internal = 2;
  const resets = [refused, internal, refused, refused];
  let calls = 0;
  const { path, listen, host } = await rig(t, (stream) => {
    calls += 1;
    const reset = calls === 2 ? undefined : resets.shift();
    if (reset === undefined) answerVersion(stream);
    else stream.close(reset);
  });
  await listen();
  const channel = createGrpcChannel({ host, path, requestTimeoutMs: 60_000, clock });
  t.after(() => channel.close());
  assert.equal((await askVersion(channel)).version, "v1");
  assert.equal(calls, 2);
  await assert.rejects(askVersion(channel), {
    code: "internal",
    message: "stream terminated by RST_STREAM with error code: INTERNAL_ERROR",
  });
  assert.equal(calls, 3);
  await assert.rejects(askVersion(channel), { code: "unavailable" });
  assert.equal(calls, 5);
});
