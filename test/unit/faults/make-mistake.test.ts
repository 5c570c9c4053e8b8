import { equal, throws } from "node:assert/strict";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { changedLines, makeMistake } from "../../faults/make-mistake.ts";
import {
  always,
  argument,
  become,
  call,
  condition,
  drop,
  element,
  entry,
  type Mistake,
  negate,
  never,
  operand,
  property,
  result,
  text,
  value,
} from "../../faults/mistake.ts";
import { parseProgram, type Program } from "../../faults/program.ts";

const source = `
const limitMs = 10_000;
export function total(a: number, b?: number) {
  if (a > limitMs || b === 0 || isNaN(a)) return { sum: 0, kind: "none", ...rest };
  return [a, b ?? a, size(a, b)];
}
export const shop = {
  open: (hour: number) => call(hour, "open"),
  close(hour: number) { call(hour, "close"); },
  script: \`umask 027; rm -rf x\`,
};
`;
/** A checkout of three files, parsed. */
function parsedFiles(): DisposableStack & { program: Program } {
  const stack = new DisposableStack();
  const folder = mkdtempSync(join(tmpdir(), "graftlet-mistakes-"));
  stack.defer(() => rmSync(folder, { recursive: true }));
  for (const part of ["src", "charts"]) mkdirSync(join(folder, part));
  writeFileSync(join(folder, "src", "a.ts"), source);
  writeFileSync(join(folder, "src", "b.ts"), "export class Twin {}\n");
  writeFileSync(join(folder, "src", "c.ts"), "export class Twin {}\n");
  writeFileSync(join(folder, "charts", "a.yaml"), "type: one\nname: two\n");
  return Object.assign(stack, { program: stack.use(parseProgram(folder)) });
}

const cases: readonly (readonly [string, Mistake, string])[] = [
  ["total", never(condition("isNaN")), 'if (false) return { sum: 0, kind: "none", ...rest };'],
  ["total", always(condition("isNaN")), 'if (true) return { sum: 0, kind: "none", ...rest };'],
  ["total", drop(operand("||", "b")), 'if (a > limitMs || isNaN(a)) return { sum: 0, kind: "none", ...rest };'],
  ["total", drop(operand("||", "limitMs")), 'if (b === 0 || isNaN(a)) return { sum: 0, kind: "none", ...rest };'],
  [
    "total",
    negate(operand("||", "isNaN")),
    'if (a > limitMs || b === 0 || !(isNaN(a))) return { sum: 0, kind: "none", ...rest };',
  ],
  ["total", drop(entry("rest")), 'if (a > limitMs || b === 0 || isNaN(a)) return { sum: 0, kind: "none" };'],
  [
    "total",
    become(property("kind"), '"all"'),
    'if (a > limitMs || b === 0 || isNaN(a)) return { sum: 0, kind: "all", ...rest };',
  ],
  ["total", drop(element("size")), "return [a, b ?? a];"],
  ["total", become(result("size"), "($)"), "return ([a, b ?? a, size(a, b)]);"],
  ["total", drop(argument("size", 1)), "return [a, b ?? a, size(b)];"],
  ["total", become(call("size"), "$ + 1"), "return [a, b ?? a, size(a, b) + 1];"],
  ["total", become(value("limitMs"), "1_000"), "const limitMs = 1_000;"],
  ["shop.close", drop(call("call")), "close(hour: number) { undefined; },"],
  ["shop.open", become(argument("call", 2), '"shut"'), 'open: (hour: number) => call(hour, "shut"),'],
  ["shop", drop(text("rm -rf x")), "script: `umask 027; `,"],
  ["charts/*.yaml", become(text("one"), "three"), "type: three"],
];
test("a fault changes exactly one place: in a declaration, elsewhere in its file, or in a file in another language", () => {
  using files = parsedFiles();
  for (const [at, mistake, line] of cases)
    equal(changedLines(makeMistake(files.program, at, mistake)).after, line, JSON.stringify(mistake));
});

const impossible: readonly (readonly [string, string, Mistake, RegExp])[] = [
  ["code that is there already", "shop.close", become(argument("call", 1), "hour"), /stays as it is/],
  ["a name that is not declared", "totals", never(condition("a")), /nothing is declared as totals/],
  ["a name that is declared twice", "Twin", never(condition("a")), /declared 2 times: src\/b\.ts, src\/c\.ts/],
  ["a place that is not there", "total", never(condition("c")), /condition c is found 0 times/],
  ["a place that is there twice", "shop", drop(call("call")), /call call is found 2 times/],
  ["a name that the file does not have", "total", become(result("size"), "amount"), /src\/a\.ts has no amount/],
  ["code that does not parse", "total", become(result("size"), "(("), /./],
  ["a file that is not there", "charts/b.yaml", drop(text("one")), /matches no file/],
  ["a text that is there twice", "charts/a.yaml", drop(text("e: ")), /is not found once/],
];
test("rejects a mistake that does not change exactly one place, or whose names or code do not fit the file", () => {
  using files = parsedFiles();
  for (const [what, at, mistake, error] of impossible)
    throws(() => makeMistake(files.program, at, mistake), error, what);
});
