import assert from "node:assert/strict";
import { once } from "node:events";
import { Duplex } from "node:stream";
import { type TestContext, test } from "node:test";
import { connectionPair } from "../../../src/streams/connection-pair.ts";
import { withEarlyReplies } from "../../../src/streams/spdy/early-replies.ts";
import { splice } from "../../../src/streams/splice.ts";
import { controlFrame, dataFrame, headerCompressor, spdyClient, words } from "../../fakes/spdy-client.ts";

const soon = () => new Promise(setImmediate);

/** A client, and the far end of the connection it is spliced to. */
function rig(t: TestContext) {
  const [socket, near] = connectionPair();
  const [far, server] = connectionPair();
  const stop = new AbortController();
  const joined = splice(withEarlyReplies(near), far, stop.signal).catch(() => undefined);
  t.after(async () => {
    stop.abort();
    socket.destroy();
    server.destroy();
    await joined;
  });
  const heard: Buffer[] = [];
  for (const end of [socket, far, server]) end.on("error", () => undefined);
  server.on("data", (chunk: Buffer) => heard.push(chunk));
  return { socket, server, joined, heard: () => Buffer.concat(heard) };
}

const write = (to: Duplex, ...parts: readonly Buffer[]) => {
  for (const part of parts) to.write(part);
};

test("accepts streams before the server has seen them, once each, and drops the server's own reply", async (t) => {
  const { socket, server, heard } = rig(t);
  const client = spdyClient(socket);
  const error = await client.open({ streamtype: "error" });
  const output = await client.open({ streamtype: "stdout" });
  await soon();
  // The client's bytes were forwarded unchanged: two SYN_STREAMs.
  assert.deepEqual([heard().readUInt16BE(2), heard().length > 40], [1, true]);
  const compress = headerCompressor();
  for (const { id } of [error, output]) write(server, controlFrame(2, Buffer.concat([words(id), await compress({})])));
  write(server, dataFrame(output.id, Buffer.from("hello")), dataFrame(output.id, Buffer.alloc(0), 1));
  write(server, dataFrame(error.id, Buffer.from("{}"), 1));
  assert.deepEqual(await Promise.all([output.text, error.text]), ["hello", "{}"]);
  assert.equal(client.frames.filter(({ type }) => type === 2).length, 2);
});

test("answers the client's pings itself, and forwards the client's replies to the server's pings", async (t) => {
  const { socket, heard } = rig(t);
  const client = spdyClient(socket);
  const output = await client.open({ streamtype: "stdout" });
  await soon();
  const before = heard().length;
  write(socket, controlFrame(6, words(7)), controlFrame(6, words(2)), dataFrame(output.id, Buffer.from("typed")));
  while (!client.frames.some(({ type }) => type === 6)) await soon();
  for (let turn = 0; turn < 5; turn += 1) await soon();
  assert.deepEqual(
    heard().subarray(before),
    Buffer.concat([controlFrame(6, words(2)), dataFrame(output.id, Buffer.from("typed"))]),
  );
});

/** Sends many pings. @returns the number of bytes accepted until the other side accepted no more for some turns of the event loop. */
async function flood(socket: Duplex, most: number): Promise<number> {
  const pings = Buffer.concat(Array.from({ length: 1000 }, () => controlFrame(6, words(1))));
  const so = { taken: 0, idle: 0 };
  while (so.taken < most && so.idle < 50) {
    so.idle += 1;
    socket.write(pings, () => {
      so.taken += pings.length;
      so.idle = 0;
    });
    await soon();
  }
  return so.taken;
}

test("stops reading a client that sends pings without reading the replies, until it reads them", async (t) => {
  const { socket, heard } = rig(t);
  const taken = await flood(socket, 4 << 20);
  assert.ok(taken < 1 << 19, `${taken} bytes were read`);
  socket.resume();
  write(socket, controlFrame(6, words(2)));
  while (heard().length === 0) await soon();
});

test("stops reading a client that leaves a data frame half read while replies wait for its end", async (t) => {
  const { socket, server } = rig(t);
  const client = spdyClient(socket);
  const { id } = await client.open({ streamtype: "stdout" });
  write(server, dataFrame(id, Buffer.from("all or nothing")).subarray(0, 12));
  await soon();
  assert.ok((await flood(socket, 4 << 20)) < 1 << 19);
});

test("disconnects a client that keeps opening streams of one command", async (t) => {
  const { socket, joined, heard } = rig(t);
  const compress = headerCompressor();
  for (let id = 1; id < 100; id += 2)
    write(socket, controlFrame(1, Buffer.concat([words(id, 0), Buffer.alloc(2), await compress({})])));
  await joined;
  assert.ok(heard().length < 33 * 50);
});

test("does not insert a reply into the middle of a data frame", async (t) => {
  const { socket, server } = rig(t);
  const client = spdyClient(socket);
  const first = await client.open({ streamtype: "stdout" });
  const frame = dataFrame(first.id, Buffer.from("one long sentence"), 1);
  for (const byte of frame.subarray(0, 12)) write(server, Buffer.from([byte]));
  await soon();
  let opened = false;
  const second = client.open({ streamtype: "stderr" }).then(() => (opened = true));
  for (let turn = 0; turn < 5; turn += 1) await soon();
  assert.equal(opened, false);
  write(server, frame.subarray(12));
  await second;
  assert.equal(await first.text, "one long sentence");
});

test("forwards the server's refusals, immediate ends and additional headers completely", async (t) => {
  const { socket, server } = rig(t);
  const client = spdyClient(socket);
  const [refused, ended, other] = [await client.open({ a: "1" }), await client.open({}), await client.open({})];
  const compress = headerCompressor();
  const header = await compress({});
  write(
    server,
    controlFrame(3, words(refused.id, 3)),
    controlFrame(2, Buffer.concat([words(ended.id), header]), 1),
    controlFrame(8, Buffer.concat([words(other.id), await compress({ later: "yes" })])),
    controlFrame(6, words(2)),
  );
  assert.equal(await ended.text, "");
  while (!client.frames.some(({ type }) => type === 6)) await soon();
  assert.equal(refused.isReset(), true);
  assert.deepEqual(
    client.frames.map(({ type }) => type),
    [2, 2, 2, 3, 0, 8, 6],
  );
});

test("forwards a lot of data unchanged, however it is split", async (t) => {
  const { socket, server } = rig(t);
  const client = spdyClient(socket);
  const stream = await client.open({ streamtype: "stdout" });
  const sent = Buffer.alloc(3_000_000, "0123456789abcdef-");
  const frames: Buffer[] = [controlFrame(2, Buffer.concat([words(stream.id), await headerCompressor()({})]))];
  for (let at = 0; at < sent.length; at += 40_000) frames.push(dataFrame(stream.id, sent.subarray(at, at + 40_000)));
  const bytes = Buffer.concat([...frames, dataFrame(stream.id, Buffer.alloc(0), 1)]);
  for (let at = 0; at < bytes.length; at += 9_973)
    if (!server.write(bytes.subarray(at, at + 9_973))) await once(server, "drain");
  assert.equal(await stream.text, sent.toString());
});

test("forwards complete data frames without copying, in both directions", async () => {
  const told: Buffer[] = [];
  const client = new Duplex({
    read: () => undefined,
    write(chunk: Buffer, _encoding, done) {
      told.push(chunk);
      done();
    },
  });
  const joined = withEarlyReplies(client);
  const heard: Buffer[] = [];
  joined.on("data", (chunk: Buffer) => heard.push(chunk));
  const frames = Buffer.concat([1, 3, 5].map((id) => dataFrame(id, Buffer.alloc(20_000, id))));
  const parts = [frames.subarray(0, 50_000), frames.subarray(50_000)];
  client.push(controlFrame(6, words(2)));
  while (heard.length < 1) await soon();
  for (const part of parts) {
    client.push(part);
    joined.write(part);
  }
  while (heard.length < 3 || told.length < 2) await soon();
  const placeOf = ({ buffer, byteOffset, length }: Buffer) => [buffer === frames.buffer, byteOffset, length];
  assert.deepEqual(told.map(placeOf), parts.map(placeOf));
  assert.deepEqual(heard.slice(1).map(placeOf), parts.map(placeOf));
  joined.destroy();
});

test("forwards other protocols unchanged, with independent half-closes", async (t) => {
  const { socket, server, joined, heard } = rig(t);
  const answers: Buffer[] = [];
  socket.on("data", (chunk: Buffer) => answers.push(chunk));
  socket.end("GET / HTTP/1.1\r\n\r\n");
  await once(server, "end");
  assert.equal(heard().toString(), "GET / HTTP/1.1\r\n\r\n");
  server.end(Buffer.from([0x80, 3, 0, 2, 255, 255, 255]));
  await once(socket, "end");
  assert.equal(Buffer.concat(answers).toString("hex"), "80030002ffffff");
  await joined;
});

test("ends the connection when a client disconnects or violates the protocol", async (t) => {
  const vanished = rig(t);
  vanished.socket.destroy();
  await vanished.joined;
  assert.equal(vanished.server.destroyed || vanished.server.readableEnded, true);
  const wrong = rig(t);
  wrong.socket.on("error", () => undefined);
  write(wrong.socket, Buffer.from([0x80, 3, 0, 1, 0, 255, 255, 255]));
  await wrong.joined;
});
