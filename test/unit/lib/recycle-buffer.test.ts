import assert from "node:assert/strict";
import { once } from "node:events";
import { type AddressInfo, type Server, type Socket, connect, createServer } from "node:net";
import { Writable } from "node:stream";
import { test } from "node:test";
import * as tls from "node:tls";
import { recycleBuffer, recycleWrittenBuffers } from "../../../src/lib/recycle-buffer.ts";

const size = 64 * 1024;

/** A stream whose writes end when the test says so. */
function held() {
  const ends: ((error?: Error) => void)[] = [];
  const stream = recycleWrittenBuffers(new Writable({ write: (_block, _encoding, done) => void ends.push(done) }));
  stream.on("error", () => undefined);
  const end = async (error?: Error) => {
    ends.shift()?.(error);
    await new Promise((resolve) => setImmediate(resolve));
  };
  return { stream, end };
}

test("frees a large block once it has been written, regardless of its offset in the packet", async () => {
  const { stream, end } = held();
  const blocks = [Buffer.alloc(size), Buffer.from(new ArrayBuffer(size + 20), 10, size)];
  for (const block of blocks) assert.equal(stream.write(block), false);
  assert.deepEqual(
    blocks.map(({ length }) => length),
    [size, size],
  );
  await end();
  assert.deepEqual(
    blocks.map(({ length }) => length),
    [0, size],
  );
  await end();
  assert.equal(blocks[1]?.length, 0);
});

test("does not free small blocks, slices of larger blocks, or blocks from Node's pool", async () => {
  const { stream, end } = held();
  const blocks = [Buffer.alloc(1_000), Buffer.alloc(2 * size).subarray(0, size), Buffer.from("pooled")];
  for (const block of blocks) stream.write(block);
  for (const _ of blocks) await end();
  assert.deepEqual(
    blocks.map(({ length }) => length),
    [1_000, size, 6],
  );
});

test("a pooled buffer is never mistaken for a large block of its own", () => {
  for (let length = 16 * 1024; length < 2 * Buffer.poolSize; length += 509) {
    const { byteLength } = Buffer.allocUnsafe(length).buffer;
    assert.ok(byteLength === length || byteLength - length > 64, `${length} of ${byteLength}`);
  }
});

test("keeps a block that nearly fills a piece of memory shared with other connections", async () => {
  const around = 40;
  const secret = { pskCallback: () => Buffer.alloc(16, 1), ciphers: "PSK", maxVersion: "TLSv1.2" } as const;
  const listen = async (server: Server): Promise<number> => {
    await once(server.listen(0, "127.0.0.1"), "listening");
    return (server.address() as AddressInfo).port;
  };
  await using plain = createServer();
  await using secure = tls.createServer(secret);
  const [bulk, ours] = [connect(await listen(plain), "127.0.0.1"), once(plain, "connection")];
  const [bulkPeer] = (await ours) as [Socket];
  const pskCallback = () => ({ psk: Buffer.alloc(16, 1), identity: "test" });
  const options = { ...secret, pskCallback, checkServerIdentity: () => undefined };
  const accepted = once(secure, "secureConnection");
  const small = tls.connect({ ...options, port: await listen(secure), host: "127.0.0.1" });
  const [smallPeer] = (await accepted) as [tls.TLSSocket];
  using sockets = new DisposableStack();
  for (const socket of [bulk, bulkPeer, small, smallPeer]) sockets.defer(() => socket.destroy());
  // What is read in one go has arrived before; a read that is under way has taken its memory.
  bulk.pause();
  bulkPeer.write("x");
  await new Promise((resolve) => setTimeout(resolve, 50));
  bulk.resume();
  await once(bulk, "data");
  bulk.pause();
  await new Promise((resolve) => bulkPeer.write(Buffer.alloc(size - around), resolve));
  await new Promise((resolve) => setTimeout(resolve, 50));
  bulk.on("data", recycleBuffer);
  const arrived = once(bulk, "data");
  bulk.resume();
  await arrived;
  smallPeer.write("hello");
  const [answer] = (await once(small, "data")) as [Buffer];
  assert.equal(answer.toString(), "hello");
});

test("keeps a block that shares its memory with another connection's", () => {
  const memory = new ArrayBuffer(size);
  const other = Buffer.from(memory, 0, 40).fill("o");
  recycleBuffer(Buffer.from(memory, 40, size - 40));
  assert.equal(other.toString(), "o".repeat(40));
});

test("keeps a block whose write is pending or failed", async () => {
  const { stream, end } = held();
  const [waited, failed] = [Buffer.alloc(size), Buffer.alloc(size)];
  let told = 0;
  stream.write(waited, () => (told += 1));
  await end();
  assert.deepEqual([waited.length, told], [size, 1]);
  stream.write(failed);
  await end(new Error("broken"));
  assert.equal(failed.length, size);
});
