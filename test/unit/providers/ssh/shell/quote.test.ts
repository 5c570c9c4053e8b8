import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { test } from "node:test";
import { printfFormat, quote, quoteAll } from "../../../../../providers/ssh/shell/quote.ts";

const sh = (script: string) => execFileSync("/bin/sh", ["-c", script]);
const hostile = [
  "",
  "'",
  "''",
  "a'b'c",
  "$(id)",
  "`id`",
  "${HOME}",
  "a\nb",
  "-n",
  "--",
  "\\",
  "\\'",
  "*",
  "~",
  "é漢🎉",
  "\u0001",
  ";",
  "!!",
  "x\n",
];

test("a quoted word reaches a command unchanged", () => {
  for (const word of hostile) assert.equal(sh(`printf %s ${quote(word)}`).toString(), word, JSON.stringify(word));
  assert.equal(sh(`printf '<%s>' ${quoteAll(hostile)}`).toString(), hostile.map((word) => `<${word}>`).join(""));
});

test("rejects words with a NUL byte", () => {
  assert.throws(() => quote("a\0b"), { code: "invalid_argument" });
});

test("a printf format prints exactly the bytes that it encodes", () => {
  const every = Buffer.from(Array.from({ length: 256 }, (_, byte) => byte));
  assert.ok(sh(`printf ${printfFormat(every)}`).equals(every));
  for (const text of hostile) assert.equal(sh(`printf ${printfFormat(text)}`).toString(), text, JSON.stringify(text));
  for (const text of ["-v x", "%s%n%%", "\\n\\0", "9\u00019"])
    assert.equal(sh(`printf ${printfFormat(text)}`).toString(), text);
});
