import assert from "node:assert/strict";
import { test } from "node:test";
import { decodeMessage, encodeMessage, type TunnelMessage } from "../../../src/remotedialer/messages.ts";

const data = Buffer.from("hello");

test("messages round-trip through encode and decode", () => {
  const messages: readonly TunnelMessage[] = [
    { kind: "data", connection: 7n, data },
    { kind: "connect", connection: 2n ** 40n, protocol: "tcp", address: "127.0.0.1:10250" },
    { kind: "error", connection: 7n, text: "EOF" },
    { kind: "pause", connection: 1n },
    { kind: "resume", connection: 1n },
    { kind: "known", connections: [1n, 2n ** 33n] },
  ];
  for (const message of messages) {
    const read = decodeMessage(encodeMessage(message, 2n ** 62n));
    assert.deepEqual(read?.kind === "data" ? { ...read, data: Buffer.from(read.data) } : read, message);
  }
});

test("encodes numbers as zigzag varints, like Go's encoding/binary", () => {
  assert.deepEqual([...encodeMessage({ kind: "data", connection: 3n, data }, 1n)], [2, 6, 2, 0xb0, 0xea, 1, ...data]);
  assert.deepEqual([...encodeMessage({ kind: "error", connection: 3n, text: "EOF" }, 1n)], [2, 6, 6, 69, 79, 70]);
});

test("ignores messages between servers and rejects malformed messages", () => {
  assert.equal(decodeMessage(Buffer.from([2, 0, 8, 97])), undefined);
  assert.throws(() => decodeMessage(Buffer.from([0x80])), /malformed remotedialer message/);
  assert.throws(() => decodeMessage(Buffer.from([2, 0, 16, 1, 2, 3])), /truncated/);
});

test("truncates error texts to the length that the peer reads", () => {
  assert.equal(encodeMessage({ kind: "error", connection: 0n, text: "x".repeat(500) }, 0n).length, 103);
});
