import assert from "node:assert/strict";
import { test } from "node:test";
import { parseMounts } from "../../../src/host/mounts.ts";
import { boundedLines, parseBoundedJson } from "../../../src/lib/bounded-text.ts";

const bytes = 16 * 1024 * 1024;
const mebibyte = 1024 * 1024;
const full = (text: string) => text.repeat(Math.floor(bytes / text.length));

function grownBy(work: () => void): number {
  const before = process.memoryUsage().heapUsed;
  work();
  return (process.memoryUsage().heapUsed - before) / mebibyte;
}

for (const [what, text] of [
  ["objects", `[${full("{},")}0]`],
  ["numbers", `[${full("1,")}0]`],
  ["object members", `{${full('"a":1,')}"b":0}`],
  ["lists within lists", full("[")],
] as const)
  test(`rejects 16 MiB of JSON made of ${what} before parsing it`, () => {
    const json = Buffer.from(text);
    const grown = grownBy(() =>
      assert.throws(() => parseBoundedJson(json), { code: "resource_exhausted", message: /^a JSON text/ }),
    );
    assert.ok(grown < 16, `the heap grew by ${grown} MiB`);
  });

test("does not count separators inside strings", () => {
  const text = JSON.stringify({ text: '{[,:"\\'.repeat(1_000_000), more: [true, "\\", '"'] });
  assert.deepEqual(parseBoundedJson(Buffer.from(text)), JSON.parse(text));
});

test("parses the list of a node with 2,000 containers", () => {
  const labels = Object.fromEntries(Array.from({ length: 40 }, (_, at) => [`io.kubernetes.label-${at}`, "a value"]));
  const list = Array.from({ length: 2_000 }, (_, at) => ({ Id: String(at), Names: ["/a"], Labels: labels, Ports: [] }));
  assert.deepEqual(parseBoundedJson(Buffer.from(JSON.stringify(list))), list);
});

for (const text of ["", "{", '{"a', '"\\', "]]", "{}x", "nul"])
  test(`throws a SyntaxError for ${JSON.stringify(text)}`, () => {
    assert.throws(() => parseBoundedJson(Buffer.from(text)), SyntaxError);
  });

test("rejects a mount table with more than 100,000 lines before parsing it", () => {
  // A repeated string is flattened on first access, which must not be part of the measurement.
  const table = Buffer.from(full("a b c d e - f\n")).toString();
  const grown = grownBy(() =>
    assert.throws(() => parseMounts(table), {
      code: "resource_exhausted",
      message: "a table of the target has more than 100000 lines",
    }),
  );
  assert.ok(grown < 16, `the heap grew by ${grown} MiB`);
});

test("splits a table into lines, and charges them to the target's budget", () => {
  const spent: number[] = [];
  const budget = { spend: (amount: number) => void spent.push(amount), exceeded: () => undefined };
  assert.deepEqual(boundedLines("a\nb\n", budget), ["a", "b", ""]);
  assert.deepEqual(spent, [4 + 3 * 256]);
  assert.deepEqual(boundedLines(""), [""]);
  parseBoundedJson(Buffer.from('{"a":[1,2]}'), budget);
  assert.deepEqual(spent.slice(1), [11 + 4 * 64]);
});
