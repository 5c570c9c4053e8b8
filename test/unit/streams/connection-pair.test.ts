import assert from "node:assert/strict";
import { once } from "node:events";
import type { Readable } from "node:stream";
import { test } from "node:test";
import { connectionPair } from "../../fakes/connection-pair.ts";

/** Reads everything to the end; leaves the stream as it is. */
async function text(stream: Readable): Promise<string> {
  const parts: Buffer[] = [];
  stream.on("data", (part: Buffer) => parts.push(part));
  await once(stream, "end");
  return Buffer.concat(parts).toString();
}

test("data written at one end is read at the other, and each direction ends independently", async () => {
  const [near, far] = connectionPair();
  near.write("question");
  near.end(" mark");
  assert.equal(await text(far), "question mark");
  far.end("answer");
  assert.equal(await text(near), "answer");
  await new Promise(setImmediate);
  assert.ok(near.destroyed && far.destroyed);
});

test("a write waits for room at the other end", async () => {
  const [near, far] = connectionPair();
  let written = 0;
  const chunk = Buffer.alloc(1 << 14);
  const more = () => {
    if (written++ < 100) near.write(chunk, more);
    else near.end();
  };
  more();
  for (let turn = 0; turn < 50; turn++) await new Promise(setImmediate);
  assert.ok(written <= 6, `${written} of 16 KiB were taken`);
  assert.equal((await text(far)).length, 100 << 14);
});

test("destroying an end before it has ended breaks the other end and its waiting write", async () => {
  const [near, far] = connectionPair();
  const failed = new Promise((resolve) => far.write(Buffer.alloc(1 << 20), resolve));
  const error = once(far, "error");
  await new Promise(setImmediate);
  near.destroy();
  assert.equal(((await error)[0] as { code: string }).code, "unavailable");
  assert.equal(((await failed) as { code: string }).code, "unavailable");
});

test("destroying an end after it has ended leaves unread data readable", async () => {
  const [near, far] = connectionPair();
  near.end("last words");
  await once(near, "finish");
  near.destroy();
  assert.equal(await text(far), "last words");
  const failed = once(far, "error");
  far.write("too late");
  assert.equal(((await failed)[0] as { code: string }).code, "unavailable");
});

test("never calls back within the caller's own write", async () => {
  const [near, far] = connectionPair();
  let within = false;
  far.on("data", () => assert.equal(within, false));
  within = true;
  near.write("x");
  within = false;
  await new Promise(setImmediate);
  near.destroy();
  far.on("error", () => undefined);
});
