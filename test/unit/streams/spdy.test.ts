import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { test } from "node:test";
import { constants, deflateSync } from "node:zlib";
import {
  dictionary,
  dictionaryId,
  createHeaderReader,
  createHeaderWriter,
} from "../../../src/streams/spdy/header-block.ts";
import { type SpdyFrame, FrameReader } from "../../../src/streams/spdy/frames.ts";
import type { RunCommand } from "../../../src/seams/runtime.ts";
import { type SpdyClient, controlFrame, dataFrame, headerCompressor, words } from "../../fakes/spdy-client.ts";
import { dialSpdy, startServer, until } from "./clients.ts";

test("uses SPDY/3's dictionary: its checksum matches the one sent in header blocks", () => {
  let [a, b] = [1, 0];
  for (const byte of dictionary) {
    a = (a + byte) % 65_521;
    b = (b + a) % 65_521;
  }
  assert.equal(b * 65_536 + a, dictionaryId);
});

test("header blocks share one compression state and are compatible with another zlib", async () => {
  const [compress, reader] = [headerCompressor(), createHeaderReader()];
  for (let round = 0; round < 200; round++) {
    const headers = { streamtype: "data", port: String(round), filler: randomBytes(200).toString("base64") };
    assert.deepEqual(Object.fromEntries(reader.read(await compress(headers))), headers);
  }
  const [writer, ours] = [createHeaderWriter(), createHeaderReader()];
  let shortest = Number.POSITIVE_INFINITY;
  for (let round = 0; round < 200; round++) {
    const headers = new Map([
      ["streamtype", "error"],
      ["requestid", String(round)],
    ]);
    const block = writer.write(headers);
    shortest = Math.min(shortest, block.length);
    assert.deepEqual(ours.read(block), headers);
  }
  assert.ok(shortest < 20, "later blocks refer to earlier ones");
});

test("rejects malformed header blocks, and those that decompress to more than 4 KiB", () => {
  const flushed = (plain: Buffer) => deflateSync(plain, { dictionary, finishFlush: constants.Z_SYNC_FLUSH });
  const name = (text: string) => Buffer.concat([words(text.length), Buffer.from(text)]);
  const blocks = {
    empty: Buffer.alloc(0),
    "no zlib": Buffer.from("plain text"),
    "another dictionary": deflateSync(words(0), { dictionary: Buffer.from("x"), finishFlush: constants.Z_SYNC_FLUSH }),
    truncated: flushed(Buffer.concat([words(2), name("a"), name("b")])),
    trailing: flushed(Buffer.concat([words(0), words(0)])),
    twice: flushed(Buffer.concat([words(2), name("a"), name("1"), name("A"), name("2")])),
    "a length beyond the end": flushed(Buffer.concat([words(1), words(0x7fff_ffff)])),
    bomb: flushed(Buffer.concat([words(1), name("a"), words(4096), Buffer.alloc(4096)])),
  };
  for (const [what, block] of Object.entries(blocks))
    assert.throws(() => createHeaderReader().read(block), { code: "invalid_argument" }, what);
});

test("finds frames however the bytes are split", () => {
  const bytes = Buffer.concat([
    controlFrame(6, words(1)),
    dataFrame(3, Buffer.from("hello")),
    dataFrame(3, Buffer.alloc(0), 1),
    controlFrame(3, words(3, 5), 1),
    dataFrame(5, Buffer.from("x")),
  ]);
  for (let size = 1; size <= bytes.length; size++) {
    const reader = new FrameReader();
    const frames: SpdyFrame[] = [];
    for (let at = 0; at < bytes.length; at += size) frames.push(...reader.read(bytes.subarray(at, at + size)));
    const controls = frames.filter((frame) => frame.kind === "control");
    assert.deepEqual(
      controls.map(({ type, fin, payload }) => [type, fin, payload.toString("hex")]),
      [
        [6, false, "00000001"],
        [3, true, "0000000300000005"],
      ],
      `cut by ${size}`,
    );
    const data = frames.filter((frame) => frame.kind === "data");
    const of3 = data.filter(({ id }) => id === 3);
    assert.equal(Buffer.concat(of3.map(({ piece }) => piece)).toString(), "hello");
    assert.deepEqual(
      data.filter(({ fin }) => fin).map(({ id, piece }) => [id, piece.length]),
      [[3, 0]],
    );
    assert.equal(data.at(-1)?.piece.toString(), "x");
  }
});

/** A command that waits for its client to disconnect. */
const waiting: RunCommand = (_streams, signal) =>
  new Promise((resolve) => signal.addEventListener("abort", () => resolve(0)));

async function startClient(server: ReturnType<typeof startServer>): Promise<SpdyClient> {
  const client = await dialSpdy(server.command({ stdin: true, stdout: true, stderr: false, tty: false }, waiting));
  for (const streamtype of ["error", "stdin", "stdout"]) await client.open({ streamtype });
  return client;
}

const [synStream, rst, goAway] = [1, 3, 7];

test("ends the connection on protocol violations, with the reason", async () => {
  await using server = startServer();
  const block = await headerCompressor()({ streamtype: "stderr" });
  const breaches: Record<string, Buffer> = {
    "another version": controlFrame(6, words(1), 0, 2),
    "control frame of 16 MiB": controlFrame(synStream, Buffer.alloc(0xff_ffff)),
    "SYN_STREAM without a stream": controlFrame(synStream, Buffer.concat([words(0, 0), Buffer.alloc(2), block])),
    "SYN_STREAM without headers": controlFrame(synStream, Buffer.concat([words(9, 0), Buffer.alloc(2)])),
    "SYN_STREAM that is too short": controlFrame(synStream, words(9)),
    "RST_STREAM that is too short": controlFrame(rst, words(1)),
    "PING that is too short": controlFrame(6, Buffer.alloc(2)),
    "HEADERS that are none": controlFrame(8, Buffer.concat([words(1), Buffer.from("rubbish")])),
    "data on stream 0": dataFrame(0, Buffer.from("x")),
    "an HTTP request": Buffer.from("\x80GET / HTTP/1.1\r\nHost: x\r\n\r\n", "latin1"),
  };
  for (const [what, bytes] of Object.entries(breaches)) {
    const client = await startClient(server);
    void client.raw(bytes);
    await client.closed;
    const last = client.frames.at(-1);
    assert.deepEqual([last?.type, last?.payload.readUInt32BE(4)], [goAway, 1], what);
    client.socket.destroy();
  }
});

test("refuses out-of-order streams; ignores data for unknown streams, unknown frames and pongs", async () => {
  await using server = startServer();
  const client = await startClient(server);
  const resets = () =>
    client.frames.filter(({ type }) => type === rst).map(({ id, payload }) => [id, payload.readUInt32BE(4)]);
  const compress = headerCompressor();
  await client.raw(dataFrame(99, Buffer.from("for nobody")));
  await until(() => resets().length === 1);
  assert.deepEqual(resets(), [[99, 2]]);
  await client.raw(
    controlFrame(4, Buffer.concat([words(1), words(7, 65_536)])),
    controlFrame(9, words(1, 65_536)),
    controlFrame(77, Buffer.from("what is this")),
    controlFrame(6, words(2)),
    controlFrame(rst, words(55, 5)),
  );
  const fresh = await startClient(server);
  await fresh.open({ streamtype: "resize" });
  assert.ok(!client.socket.destroyed);
  client.socket.destroy();
  fresh.socket.destroy();

  const other = await dialSpdy(server.command({ stdin: true, stdout: true, stderr: false, tty: false }, waiting));
  for (const [id, status] of [
    [4, 1],
    [9, undefined],
    [9, 1],
    [3, 1],
  ] as const) {
    const streamtype = id === 9 ? "error" : "stdin";
    const before = other.frames.length;
    await other.raw(
      controlFrame(synStream, Buffer.concat([words(id, 0), Buffer.alloc(2), await compress({ streamtype })])),
    );
    await until(() => other.frames.length > before);
    const answer = other.frames.at(-1);
    if (status === undefined) assert.equal(answer?.type, 2);
    else assert.deepEqual([answer?.type, answer?.id, answer?.payload.readUInt32BE(4)], [rst, id, status]);
  }
  other.socket.destroy();
});

test("stops reading a client that sends pings without reading the replies", async () => {
  await using server = startServer();
  const client = await startClient(server);
  client.pause();
  const pings = Buffer.concat(Array.from({ length: 4096 }, () => controlFrame(6, words(1))));
  let sent = 0;
  void (async () => {
    for (; sent < 1000; sent++) await client.raw(pings);
  })();
  for (let turn = 0; turn < 1000; turn++) await new Promise(setImmediate);
  assert.ok(sent < 20, `${sent} times 4096 pings were taken`);
  client.socket.destroy();
});

test("after its GOAWAY, a client opens no more streams, but open streams continue", async () => {
  await using server = startServer();
  const client = await dialSpdy(
    server.portForward([], () => Promise.reject(new Error("no"))),
    "portforward.k8s.io",
  );
  await client.open({ streamtype: "error", port: "1", requestid: "1" });
  await client.raw(controlFrame(goAway, words(0, 0)));
  const late = client.open({ streamtype: "data", port: "1", requestid: "1" });
  await client.raw(controlFrame(6, words(1)));
  await until(() => client.frames.some(({ type }) => type === 6));
  client.socket.destroy();
  await assert.rejects(late, /connection gone/);
});

test("refuses streams beyond the maximum of a connection", async () => {
  await using server = startServer();
  const client = await dialSpdy(
    server.portForward([], async (_port, signal) => {
      await once(signal, "abort");
      throw new Error("given up");
    }),
    "portforward.k8s.io",
  );
  const open = (streamtype: string, index: number) => client.open({ streamtype, port: "1", requestid: String(index) });
  for (let index = 0; index < 256; index++) await open("error", index);
  await assert.rejects(open("error", 256), /stream reset/);
  for (let index = 0; index < 256; index++) await open("data", index);
  await assert.rejects(open("error", 256), /stream reset/, "connections that stand count alike");
  client.socket.destroy();
});
