import assert from "node:assert/strict";
import { test } from "node:test";
import { parseEnvFile } from "../../../src/pod/env-file.ts";

const envFileValue = (text: string | Buffer, name: string) =>
  parseEnvFile(typeof text === "string" ? Buffer.from(text) : text).get(name);

const file = [
  "# a comment",
  "",
  "A='one'",
  "  B='two words' # and a comment",
  "C='three",
  "lines = not a name",
  "'",
  "D= 'not this'",
  "E='$HOME \"#'",
].join("\n");

test("values in single quotes are literal and may span lines", () => {
  assert.deepEqual(
    ["A", "B", "C", "D", "E", "F"].map((name) => envFileValue(file, name)),
    ["one", "two words", "three\nlines = not a name\n", "", '$HOME "#', undefined],
  );
  assert.equal(envFileValue("", "A"), undefined);
  assert.equal(envFileValue("A='x'\r\nB='y'\r\n", "B"), "y");
});

test("a carriage return before a newline is dropped, in values and comments, and kept elsewhere", () => {
  assert.equal(envFileValue("# c\rd\r\nA='x\r\ny\rz\r\r\n'\r\n", "A"), "x\ny\rz\r\n");
});

for (const [what, text] of [
  ["a line without an assignment", "A"],
  ["a line without a name", "='x'"],
  ["a blank before the equals sign", "A ='x'"],
  ["an unquoted value", "A=x"],
  ["a value in double quotes", 'A="x"'],
  ["an unterminated quote", "A='x\nB"],
  ["text after the closing quote", "A='x'y"],
] as const)
  test(`a file with ${what} is rejected with its line number`, () => {
    assert.throws(() => envFileValue(`# ok\n${text}`, "Z"), /line 2/);
  });

test("reports errors in lines before the variable, and ignores errors after it", () => {
  assert.equal(envFileValue("A='x'\nnonsense", "A"), "x");
});

test("rejects a line of more than 65535 bytes, and keeps the definitions before it", () => {
  const longest = "x".repeat(65_535);
  const lines = ["A='x'", `# ${longest.slice(2)}`, "B='y", longest, "'", "C='z'", `D='${longest}'`, "E='x'"].join("\n");
  assert.deepEqual(
    ["A", "B", "C"].map((name) => envFileValue(lines, name)),
    ["x", `y\n${longest}\n`, "z"],
  );
  for (const name of ["D", "E", "F"])
    assert.throws(() => envFileValue(lines, name), /line 7 has more than 65535 bytes/);
  assert.throws(() => envFileValue(`A='x\n${longest}x\n'`, "A"), /line 1|line 2/);
  assert.throws(() => envFileValue(`A='x'\n${longest}\r`, "B"), /line 2 has more than 65535 bytes/);
});

test("parsing time is linear in the file's size, regardless of the number of lines", () => {
  const began = performance.now();
  assert.equal(envFileValue(`${"\n".repeat(300_000)}A='x'`, "A"), "x");
  assert.ok(performance.now() - began < 10_000, "a moment, not minutes");
});

test("a file is parsed once for all variables; the first definition of a name counts", () => {
  const parsed = parseEnvFile(Buffer.from(`A='x'\nA='y'\n${"B='z'\n".repeat(100_000)}`));
  const began = performance.now();
  for (let asked = 0; asked < 100_000; asked += 1) assert.equal(parsed.get("A"), "x");
  assert.ok(performance.now() - began < 10_000, "a moment, not minutes");
});

test("rejects a value that is not UTF-8, but not the other values in its file", () => {
  const bytes = Buffer.concat([Buffer.from("A='\u00e9'\nB='"), Buffer.from([0x61, 0xff]), Buffer.from("'\n")]);
  assert.equal(envFileValue(bytes, "A"), "\u00e9");
  assert.throws(() => envFileValue(bytes, "B"), { message: "the value of B is not UTF-8" });
});
