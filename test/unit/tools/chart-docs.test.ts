import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { tableOf, valuesIn, withValues } from "../../../tools/chart-docs.ts";

const chart = join(import.meta.dirname, "..", "..", "..", "charts", "graftlet");
const read = (file: string) => readFileSync(join(chart, file), "utf8");

test("the table in the chart's README matches values.yaml (make chart-docs)", () => {
  assert.equal(withValues(read("README.md"), read("values.yaml")), read("README.md"));
});

test("lists values of nested groups, their defaults and comments", () => {
  const text = `# A word on the file.
# -- First, in
# two lines
first: ""
group:
  # -- Of a group
  inner: 5
  list: []
# no meaning
# -- A group with a | and a meaning is one value
probe:
  path: /livez
flow: { a: "1" }
none: null
long: [aaaaaaaaaaaaaaaa, aaaaaaaaaaaaaaaaaaaa, aaaaaaaaaaaaaaaaaaaaaaa, aaaaaa]
`;
  assert.deepEqual(
    valuesIn(text).map(({ value, fallback, meaning }) => [value, fallback, meaning]),
    [
      ["first", '`""`', "First, in two lines"],
      ["group.inner", "`5`", "Of a group"],
      ["group.list", "`[]`", ""],
      ["probe", "`{ path: /livez }`", "A group with a | and a meaning is one value"],
      ["flow", '`{ a: "1" }`', ""],
      ["none", "`null`", ""],
      ["long", "see values.yaml", ""],
    ],
  );
  assert.equal(
    tableOf(valuesIn('# -- a | b\none: ""\n')),
    '| value | default | meaning |\n| ----- | ------- | ------- |\n| `one` | `""`    | a \\| b  |',
  );
});

test("keeps the text around the table, and rejects a README without markers for the table", () => {
  const around = (table: string) => `before\n<!-- values.yaml, by make chart-docs -->${table}<!-- end -->\nafter\n`;
  const table = `\n\n${tableOf(valuesIn("a: 1\n"))}\n\n`;
  assert.equal(withValues(around("\nstale\n"), "a: 1\n"), around(table));
  assert.throws(() => withValues("nothing", "a: 1\n"), /the chart's README has no <!-- values\.yaml/);
});
