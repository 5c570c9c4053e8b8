import assert from "node:assert/strict";
import { EventEmitter } from "node:events";
import type { ClientHttp2Session } from "node:http2";
import { test } from "node:test";
import { startCall } from "../../../src/lib/grpc.ts";
import { never } from "../../fakes/signals.ts";

/** The messages of a call whose response arrives in these chunks. */
async function messagesOf(pieces: Iterable<Buffer>): Promise<Buffer[]> {
  const stream = Object.assign(new EventEmitter(), {
    end() {},
    async *[Symbol.asyncIterator]() {
      yield* pieces;
    },
  });
  const session = { request: () => stream } as unknown as ClientHttp2Session;
  const call = startCall(session, { path: "/a/b", message: Buffer.alloc(0), userAgent: "test" }, never);
  return await Array.fromAsync(call.messages);
}

function framed(...texts: readonly string[]): Buffer {
  return Buffer.concat(
    texts.map((text) => {
      const frame = Buffer.alloc(5 + text.length, text);
      frame.fill(0, 0, 5);
      frame.writeUInt32BE(text.length, 1);
      frame.write(text, 5);
      return frame;
    }),
  );
}

function* piecesOf(bytes: Buffer, size: number): Iterable<Buffer> {
  for (let at = 0; at < bytes.length; at += size) yield bytes.subarray(at, at + size);
}

for (const size of [1, 2, 5, 6, 7, 100])
  test(`assembles messages from chunks of ${size} bytes`, async () => {
    const texts = ["", "one", "", "a longer message", ""];
    const messages = await messagesOf(piecesOf(framed(...texts), size));
    assert.deepEqual(messages.map(String), texts);
  });

test("assembles a 4 MiB message in linear time", async () => {
  const bytes = framed("x".repeat(4 * 1024 * 1024));
  const began = performance.now();
  const [message] = await messagesOf(piecesOf(bytes, 256));
  assert.equal(message?.length, 4 * 1024 * 1024);
  assert.ok(performance.now() - began < 2_000, `took ${performance.now() - began} ms`);
});

test("rejects a message of more than 4 MiB by its length prefix", async () => {
  const prefix = Buffer.from([0, 0, 0x40, 0, 1]);
  await assert.rejects(messagesOf([prefix]), {
    code: "resource_exhausted",
    message: "a message of 4194305 bytes is longer than 4194304 bytes",
  });
});

for (const [where, bytes] of [
  ["prefix", framed("text").subarray(0, 3)],
  ["message", framed("text").subarray(0, 7)],
] as const)
  test(`reports a response without a status that ends within a ${where}`, async () => {
    await assert.rejects(messagesOf([bytes]), {
      message: "rpc error: code = Unavailable desc = error reading from server: EOF",
    });
  });
