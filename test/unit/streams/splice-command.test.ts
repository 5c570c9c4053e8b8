import assert from "node:assert/strict";
import { once } from "node:events";
import { type TestContext, test } from "node:test";
import { connectionPair } from "../../../src/streams/connection-pair.ts";
import { spliceCommand } from "../../../src/streams/splice-command.ts";
import { controlFrame, dataFrame, headerCompressor, spdyClient, words } from "../../fakes/spdy-client.ts";

const lost = Buffer.from("lost");

/** A client, and the server's end of the connection it is spliced to. */
function rig(t: TestContext) {
  const [socket, near] = connectionPair();
  const [far, server] = connectionPair();
  const stop = new AbortController();
  const joined = spliceCommand(near, far, lost, stop.signal).catch(() => undefined);
  t.after(async () => {
    stop.abort();
    for (const end of [socket, server]) end.destroy();
    await joined;
  });
  for (const end of [socket, near, far, server]) end.on("error", () => undefined);
  server.resume();
  return { socket, server };
}

/** A client with an error stream and an output stream, both accepted by the server. */
async function opened(t: TestContext) {
  const { socket, server } = rig(t);
  const client = spdyClient(socket);
  const compress = headerCompressor();
  const open = async (streamtype: string, id: number) => {
    const heard = once(server, "data");
    const stream = client.open({ streamtype });
    await heard;
    server.write(controlFrame(2, Buffer.concat([words(id), await compress({})])));
    return stream;
  };
  return { client, server, output: await open("stdout", 1), errors: await open("error", 3) };
}

test("delivers the received part of a frame and the status when the server breaks off in the middle of it", async (t) => {
  const { client, server, output, errors } = await opened(t);
  const frame = dataFrame(output.id, Buffer.from("half of it"), 1);
  server.write(frame.subarray(0, 5));
  await new Promise(setImmediate);
  server.write(frame.subarray(5, 12));
  await new Promise((resolve) => server.write(Buffer.alloc(0), resolve));
  server.destroy();
  assert.deepEqual([await output.text, await errors.text], ["half", "lost"]);
  await client.closed;
});

test("forwards data frames that arrive in parts as complete ones", async (t) => {
  const { client, server, output, errors } = await opened(t);
  const bytes = Buffer.concat([
    dataFrame(output.id, Buffer.from("one ")),
    dataFrame(output.id, Buffer.from("and two"), 1),
    dataFrame(errors.id, Buffer.from("told"), 1),
  ]);
  for (const byte of bytes) {
    server.write(Buffer.from([byte]));
    await new Promise(setImmediate);
  }
  assert.deepEqual([await output.text, await errors.text], ["one and two", "told"]);
  server.end();
  await client.closed;
  assert.deepEqual(
    client.frames.filter(({ type }) => type === 0).map(({ id, flags }) => [id, flags]),
    [
      [output.id, 0],
      [output.id, 1],
      [errors.id, 1],
    ],
  );
});

test("forwards a very long frame as it arrives; a break within it just ends the connection", async (t) => {
  const { client, server, output, errors } = await opened(t);
  let heard = 0;
  const all = Promise.withResolvers<void>();
  client.socket.prependListener("data", (chunk: Buffer) => {
    heard += chunk.length;
    if (heard >= 1 << 17) all.resolve();
  });
  const frame = dataFrame(output.id, Buffer.alloc(1 << 20));
  for (let at = 0; at < 1 << 18; at += 1 << 14) server.write(frame.subarray(at, at + (1 << 14)));
  await all.promise;
  server.destroy();
  assert.equal(await errors.text, "");
  await client.closed;
});

test("adds no status if the server has used or ended the error stream", async (t) => {
  for (const last of [
    (id: number) => dataFrame(id, Buffer.from("told")),
    (id: number) => dataFrame(id, Buffer.alloc(0), 1),
    (id: number) => controlFrame(3, words(id, 5)),
  ]) {
    const { client, server, errors } = await opened(t);
    server.write(last(errors.id));
    await new Promise(setImmediate);
    server.end();
    await client.closed;
    assert.doesNotMatch(await errors.text, /lost/);
  }
});

test("forwards other protocols unchanged; a connection without an error stream just ends", async (t) => {
  const plain = rig(t);
  plain.socket.write("hello");
  plain.server.once("data", () => plain.server.end("\x00\x00\x00\x01 a data frame's head to some"));
  const heard = await plain.socket.toArray();
  assert.equal(Buffer.concat(heard as Buffer[]).toString(), "\x00\x00\x00\x01 a data frame's head to some");
  const { socket, server } = rig(t);
  const client = spdyClient(socket);
  client.open({ streamtype: "stdout" }).catch(() => undefined);
  await new Promise(setImmediate);
  server.destroy();
  await client.closed;
  assert.deepEqual(client.frames, []);
});
