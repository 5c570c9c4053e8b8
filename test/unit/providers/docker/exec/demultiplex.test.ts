import assert from "node:assert/strict";
import { Writable } from "node:stream";
import { test } from "node:test";
import { demultiplex } from "../../../../../providers/docker/exec/demultiplex.ts";
import { createFrames } from "../../../../../providers/docker/client/frames.ts";
import { BoundedOutput } from "../../../../../providers/docker/exec/process.ts";
import { detachKeys } from "../../../../../providers/docker/client/hijack.ts";
import { never } from "../../../../fakes/signals.ts";
import { cut, frame } from "../framing.ts";

async function* blocks(bytes: Buffer, size: number): AsyncGenerator<Buffer, void> {
  yield* cut(bytes, size);
}

const stream = Buffer.concat([
  frame(1, "out 1\n"),
  frame(2, "err 1\n"),
  frame(1, ""),
  frame(1, "x".repeat(300)),
  frame(0, "not for us"),
  frame(2, "err 2\n"),
]);

for (const size of [1, 7, 8, 9, 64, 10_000]) {
  test(`parses frames that arrive in blocks of ${size}`, async () => {
    const [stdout, stderr] = [new BoundedOutput(1000), new BoundedOutput(1000)];
    await demultiplex(blocks(stream, size), { stdout, stderr, tty: false }, never);
    assert.equal(stdout.bytes().toString(), `out 1\n${"x".repeat(300)}`);
    assert.equal(stderr.bytes().toString(), "err 1\nerr 2\n");
  });
}

test("marks the last piece of each frame, even of an empty frame", () => {
  const frames = createFrames();
  const pieces = cut(Buffer.concat([frame(1, ""), frame(2, "abcdef")]), 11).flatMap((block) => [...frames(block)]);
  assert.deepEqual(
    pieces.map(({ kind, bytes, last }) => [kind, bytes.toString(), last]),
    [
      ["stdout", "", true],
      ["stderr", "abcdef", true],
    ],
  );
});

test("an invalid frame is an error, not output", async () => {
  const stdout = new BoundedOutput(1000);
  await assert.rejects(demultiplex(blocks(Buffer.from("plain text, no frames"), 5), { stdout, tty: false }, never), {
    message: /invalid stream frame/,
  });
  assert.equal(stdout.bytes().length, 0);
});

test("a failure reported in the stream is an error", async () => {
  const told = Buffer.concat([frame(1, "so far\n"), frame(3, "disk on fire\n")]);
  await assert.rejects(demultiplex(blocks(told, 9), { tty: false }, never), {
    code: "unknown",
    message: "disk on fire",
  });
});

test("passes a terminal's output on unchanged", async () => {
  const stdout = new BoundedOutput(1000);
  await demultiplex(blocks(stream, 50), { stdout, tty: true }, never);
  assert.deepEqual(stdout.bytes(), stream);
});

test("backpressure: reads only as fast as the outputs accept, and stops at the signal", async () => {
  const stop = new AbortController();
  let read = 0;
  async function* counted(): AsyncGenerator<Buffer, void> {
    for (;;) {
      read++;
      yield frame(1, "y".repeat(1000));
    }
  }
  const stuck = new Writable({ highWaterMark: 10_000, write: () => undefined });
  const done = demultiplex(counted(), { stdout: stuck, tty: false }, stop.signal);
  for (let turn = 0; turn < 100; turn++) await new Promise(setImmediate);
  assert.equal(read, 10);
  stop.abort();
  await assert.rejects(done, { code: "cancelled" });
  assert.equal(stuck.listenerCount("drain"), 0);
});

test("drops output for a closed receiver without blocking the other", async () => {
  const [stdout, stderr] = [new Writable(), new BoundedOutput(1000)];
  stdout.destroy();
  await demultiplex(blocks(stream, 100), { stdout, stderr, tty: false }, never);
  assert.equal(stderr.bytes().toString(), "err 1\nerr 2\n");
});

test("KeptOutput keeps the first bytes only, and allocates no more than it needs", () => {
  const kept = new BoundedOutput(10);
  for (const piece of ["abc", "", "defghi", "jklm", "n"]) kept.write(piece);
  assert.equal(kept.bytes().toString(), "abcdefghij");
  const small = new BoundedOutput(1 << 30);
  small.write("x");
  assert.ok(small.bytes().buffer.byteLength < 10_000);
});

test("detach keys begin with NUL and use Docker's notation", () => {
  const keys = detachKeys.split(",");
  assert.equal(keys[0], "ctrl-@");
  assert.ok(keys.length >= 16);
  for (const key of keys) assert.match(key, /^ctrl-[@^_]$/);
});
