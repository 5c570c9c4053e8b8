import assert from "node:assert/strict";
import { EventEmitter } from "node:events";
import { test } from "node:test";
import { recycleReadBuffers } from "../../../../../providers/ssh/connection/recycle-reads.ts";

const size = 64 * 1024;

/** Lengths of a buffer as seen by ssh2, and afterwards, on a connection with this cipher. */
function lengths(cipher: string) {
  const [client, socket] = [new EventEmitter(), new EventEmitter()];
  recycleReadBuffers(client, socket);
  const heard: number[] = [];
  socket.on("data", (block: Buffer) => {
    heard.push(block.length);
    if (heard.length === 1) client.emit("handshake", { sc: { cipher } });
  });
  const blocks = [Buffer.alloc(size), Buffer.alloc(size)];
  for (const block of blocks) socket.emit("data", block);
  return { heard, after: blocks.map(({ length }) => length) };
}

test("recycles a buffer once ssh2 has decrypted it, but not before the first key exchange", () => {
  assert.deepEqual(lengths("aes128-gcm@openssh.com"), { heard: [size, size], after: [size, 0] });
});

test("does not recycle buffers with ciphers for which ssh2 may keep a packet in them", () => {
  for (const cipher of ["chacha20-poly1305@openssh.com", "aes128-ctr"])
    assert.deepEqual(lengths(cipher), { heard: [size, size], after: [size, size] });
});
