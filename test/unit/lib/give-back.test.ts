import assert from "node:assert/strict";
import { Writable } from "node:stream";
import { test } from "node:test";
import { givesBack } from "../../../src/lib/give-back.ts";

const size = 64 * 1024;

/** A stream whose writes end when the test says so. */
function held() {
  const ends: ((error?: Error) => void)[] = [];
  const stream = givesBack(new Writable({ write: (_block, _encoding, done) => void ends.push(done) }));
  stream.on("error", () => undefined);
  const end = async (error?: Error) => {
    ends.shift()?.(error);
    await new Promise((resolve) => setImmediate(resolve));
  };
  return { stream, end };
}

test("frees a large block once it has been written, whatever its offset in the packet", async () => {
  const { stream, end } = held();
  const blocks = [Buffer.alloc(size), Buffer.from(new ArrayBuffer(size), 10, size - 20)];
  for (const block of blocks) assert.equal(stream.write(block), false);
  assert.deepEqual(
    blocks.map(({ length }) => length),
    [size, size - 20],
  );
  await end();
  assert.deepEqual(
    blocks.map(({ length }) => length),
    [0, size - 20],
  );
  await end();
  assert.equal(blocks[1]?.length, 0);
});

test("does not free small blocks, slices of larger blocks, or blocks of Node's pool", async () => {
  const { stream, end } = held();
  const blocks = [Buffer.alloc(1_000), Buffer.alloc(2 * size).subarray(0, size), Buffer.from("pooled")];
  for (const block of blocks) stream.write(block);
  for (const _ of blocks) await end();
  assert.deepEqual(
    blocks.map(({ length }) => length),
    [1_000, size, 6],
  );
});

test("a pooled buffer never counts as a large whole block", () => {
  for (let length = 16 * 1024; length < 2 * Buffer.poolSize; length += 509) {
    const { byteLength } = Buffer.allocUnsafe(length).buffer;
    assert.ok(byteLength === length || byteLength - length > 64, `${length} of ${byteLength}`);
  }
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
