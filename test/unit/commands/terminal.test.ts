import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { processTerminal, printJson } from "../../../src/commands/terminal.ts";

/** What commands write on standard output. */
function written(t: TestContext): () => string {
  const parts: string[] = [];
  t.mock.method(process.stdout, "write", (text: string) => parts.push(text) > 0);
  return () => parts.join("");
}

const hostile = "mount failed: \u001b]0;owned\u0007\u001b[2J\nedge-2: ready\r\u009b31m\u202Etxt\u007f ünïcode";

test("escapes control characters in a target's text, and prints it on one line", (t) => {
  const said = written(t);
  processTerminal().print(hostile);
  assert.equal(
    said(),
    "mount failed: \\u001b]0;owned\\u0007\\u001b[2J\\nedge-2: ready\\u000d\\u009b31m\\u202etxt\\u007f ünïcode\n",
  );
});

test("prints JSON with control characters escaped and values unchanged", (t) => {
  const said = written(t);
  printJson(processTerminal(), { message: hostile, list: [1, { two: "x" }] });
  assert.deepEqual(JSON.parse(said()), { message: hostile, list: [1, { two: "x" }] });
  assert.doesNotMatch(said().replaceAll("\n", ""), /[\p{Cc}\u202E]/u);
  assert.ok(said().split("\n").length > 5);
});
