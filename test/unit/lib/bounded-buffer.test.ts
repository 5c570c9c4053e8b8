import assert from "node:assert/strict";
import { test } from "node:test";
import { BoundedBuffer } from "../../../src/lib/bounded-buffer.ts";

test("keeps the first bytes of a sequence of chunks, and reports whether it truncated them", () => {
  const kept = new BoundedBuffer(5);
  assert.deepEqual(
    ["ab", "", "cd"].map((piece) => kept.add(Buffer.from(piece))),
    [true, true, true],
  );
  assert.equal(kept.length, 4);
  assert.equal(kept.add(Buffer.from("ef")), false);
  assert.equal(kept.bytes().toString(), "abcde");
  assert.equal(kept.add(Buffer.from("g")), false);
  assert.equal(kept.take().toString(), "abcde");
  assert.equal(kept.add(Buffer.from("next")), true);
  assert.equal(kept.bytes().toString(), "next");
});

test("a million one-byte chunks use no more memory than the bytes that are kept", () => {
  const kept = new BoundedBuffer(2 ** 20);
  const block = Buffer.alloc(64 * 1024, "x");
  const before = process.memoryUsage().rss;
  for (let at = 0; at < 2 ** 20; at++) kept.add(block.subarray(at % block.length, (at % block.length) + 1));
  assert.equal(kept.length, 2 ** 20);
  const grown = (process.memoryUsage().rss - before) / 2 ** 20;
  assert.ok(grown < 32, `${grown} MiB`);
});

test("the returned buffer uses at most twice its length in memory, and does not change later", () => {
  const kept = new BoundedBuffer(2 ** 20);
  const taken = ["small", "x".repeat(3_000), "y".repeat(5_000), "end"].map((text) => {
    kept.add(Buffer.from(text));
    return { text, bytes: kept.take() };
  });
  for (const { text, bytes } of taken) {
    assert.equal(bytes.toString(), text);
    assert.ok(bytes.buffer.byteLength <= 2 * text.length, `${text.length} bytes hold ${bytes.buffer.byteLength}`);
  }
});
