import assert from "node:assert/strict";
import { Duplex } from "node:stream";
import { test } from "node:test";
import { coalesceWrites } from "../../../../../providers/ssh/connection/coalesce-writes.ts";

/** A connection, and the data sent by each of its system calls. */
function recorded() {
  const sent: string[] = [];
  const connection = new Duplex({
    read() {},
    write(chunk: Buffer, _encoding, done) {
      sent.push(String(chunk));
      done();
    },
    writev(parts, done) {
      sent.push(parts.map(({ chunk }) => String(chunk)).join(""));
      done();
    },
  });
  return { connection: coalesceWrites(connection), sent };
}

const turn = () => new Promise((resolve) => setImmediate(resolve));

test("coalesces the writes of one turn, sends them at its end and calls their callbacks", async () => {
  const { connection, sent } = recorded();
  const written: string[] = [];
  for (const part of ["head", "body", "tag"]) connection.write(part, () => written.push(part));
  assert.deepEqual(sent, []);
  await turn();
  assert.deepEqual(sent, ["headbodytag"]);
  assert.deepEqual(written, ["head", "body", "tag"]);
  connection.write("next");
  await turn();
  assert.deepEqual(sent, ["headbodytag", "next"]);
});

test("flushes pending writes before the end of the stream", async () => {
  const { connection, sent } = recorded();
  connection.write("last");
  connection.end("word");
  await turn();
  assert.equal(sent.join(""), "lastword");
});

test("write returns false above the high-water mark", () => {
  const { connection } = recorded();
  assert.equal(connection.write(Buffer.alloc(connection.writableHighWaterMark)), false);
});
