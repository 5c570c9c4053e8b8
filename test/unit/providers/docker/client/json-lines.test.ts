import assert from "node:assert/strict";
import { test } from "node:test";
import { jsonLines } from "../../../../../providers/docker/client/json-lines.ts";

async function* chunks(...parts: readonly (string | Buffer)[]): AsyncGenerator<Buffer> {
  for (const part of parts) yield Buffer.from(part);
}

test("lines cut anywhere, inside of a character too, come out whole", async () => {
  const text = Buffer.from('{"a":"ü"}\r\n\n{"b":2}\n{"c":3}');
  for (let cut = 1; cut < text.length; cut++) {
    const values = await Array.fromAsync(jsonLines(chunks(text.subarray(0, cut), text.subarray(cut))));
    assert.deepEqual(values, [{ a: "ü" }, { b: 2 }, { c: 3 }], `cut at ${cut}`);
  }
});

test("a line that never ends is given up", async () => {
  await assert.rejects(Array.fromAsync(jsonLines(chunks("1234", "5678"), 6)), { code: "resource_exhausted" });
  assert.deepEqual(await Array.fromAsync(jsonLines(chunks("123", "45\n12345"), 6)), [12345, 12345]);
});

test("invalid JSON is an error", async () => {
  await assert.rejects(Array.fromAsync(jsonLines(chunks("<html>\n"))), { code: "unknown" });
});

test("the source is read no faster than the values are taken", async () => {
  let read = 0;
  async function* source() {
    for (; read < 10; read++) yield Buffer.from("1\n");
  }
  const lines = jsonLines(source());
  await lines.next();
  await lines.next();
  assert.equal(read, 1);
});
