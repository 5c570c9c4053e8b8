import assert from "node:assert/strict";
import { Duplex } from "node:stream";
import { test } from "node:test";
import { sendTogether } from "../../../../../providers/ssh/connection/send-together.ts";

/** A connection, and what each of its calls of the system has sent. */
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
  return { connection: sendTogether(connection), sent };
}

const turn = () => new Promise((resolve) => setImmediate(resolve));

test("what one turn writes is sent at once, at its end, and told to who waits for it", async () => {
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

test("what has been written before the end is sent", async () => {
  const { connection, sent } = recorded();
  connection.write("last");
  connection.end("word");
  await turn();
  assert.equal(sent.join(""), "lastword");
});

test("a write says when more waits than shall", () => {
  const { connection } = recorded();
  assert.equal(connection.write(Buffer.alloc(connection.writableHighWaterMark)), false);
});
