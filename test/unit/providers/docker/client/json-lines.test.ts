import assert from "node:assert/strict";
import { test } from "node:test";
import { jsonLines } from "../../../../../providers/docker/client/json-lines.ts";
import { createTargetBudget } from "../../../../../src/lib/target-budget.ts";
import { fakeClock } from "../../../../fakes/clock.ts";

async function* chunks(...parts: readonly (string | Buffer)[]): AsyncGenerator<Buffer> {
  for (const part of parts) yield Buffer.from(part);
}

test("parses lines split anywhere, even within a character", async () => {
  const text = Buffer.from('{"a":"ü"}\r\n\n{"b":2}\n{"c":3}');
  for (let cut = 1; cut < text.length; cut++) {
    const values = await Array.fromAsync(jsonLines(chunks(text.subarray(0, cut), text.subarray(cut))));
    assert.deepEqual(values, [{ a: "ü" }, { b: 2 }, { c: 3 }], `cut at ${cut}`);
  }
});

test("rejects an endless line", async () => {
  await assert.rejects(Array.fromAsync(jsonLines(chunks("1234", "5678"), { maxLineBytes: 6 })), {
    code: "resource_exhausted",
  });
  const short = jsonLines(chunks('{"a":', "1}\n", '{"a":2}'), { maxLineBytes: 8 });
  assert.deepEqual(await Array.fromAsync(short), [{ a: 1 }, { a: 2 }]);
});

for (const line of ["<html>", "null", "12", "[]"])
  test(`rejects a line that is not a JSON object: ${line}`, async () => {
    await assert.rejects(Array.fromAsync(jsonLines(chunks(`${line}\n`))), { code: "unknown" });
  });

test("rejects a line with too many values", async () => {
  const line = `{"a":[${"0,".repeat(1_500_000)}0]}\n`;
  await assert.rejects(Array.fromAsync(jsonLines(chunks(line))), { code: "resource_exhausted" });
});

test("charges the budget piece by piece for a stream without line breaks", async () => {
  const budget = createTargetBudget({ clock: fakeClock() });
  async function* blanks() {
    for (;;) yield Buffer.from(" ");
  }
  await assert.rejects(Array.fromAsync(jsonLines(blanks(), { budget })), { code: "resource_exhausted" });
  assert.ok(budget.exceeded());
});

test("backpressure: reads the source only as fast as the values are consumed", async () => {
  let read = 0;
  async function* source() {
    for (; read < 10; read++) yield Buffer.from("{}\n");
  }
  const lines = jsonLines(source());
  await lines.next();
  await lines.next();
  assert.equal(read, 1);
});
