import assert from "node:assert/strict";
import { test } from "node:test";
import type { SuiteName } from "../../conformance/list.ts";
import { failureLine, partOf, tableOf } from "../../conformance/page.ts";
import type { Verdict } from "../../conformance/verdicts.ts";

const verdict = (suite: SuiteName, name: string, says?: string): Verdict => ({
  test: { suite, name },
  passed: says === undefined,
  state: says === undefined ? "passed" : "failed",
  says: says ?? "",
});
const verdicts = [
  verdict("e2e", "[sig-node] A"),
  verdict("e2e", "[sig-node] B", "timed out"),
  verdict("e2e_node", "[sig-node] A"),
  verdict("e2e", "[sig-apps] C"),
];
const made = { date: "2026-11-21", minutes: 61, madeOn: "2 processors" };

test("counts passed and run tests by area and suite", () => {
  assert.equal(
    tableOf(verdicts),
    [
      "| area     | e2e    | e2e_node |",
      "| -------- | ------ | -------- |",
      "| sig-apps | 1 of 1 |          |",
      "| sig-node | 1 of 2 | 1 of 1   |",
      "| all      | 2 of 3 | 1 of 1   |",
    ].join("\n"),
  );
});

test("lists failures with their cause, if known", () => {
  const limits = [{ cause: "no such network", tests: ["e2e [sig-node] B"] }];
  const text = partOf({ verdicts, limits, ...made });
  assert.match(text, /^\*\*3 of 4\*\* passed on 2026-11-21, in 61 minutes on 2 processors\.\n\n\| area/);
  assert.match(
    text,
    /\n\nNot passed:\n\n- impossible here: no such network:\n {2}- e2e `\[sig-node\] B`: failed \(`timed out`\)$/,
  );
  assert.match(partOf({ verdicts, limits: [], ...made }), /\n- the cause is not known yet:\n {2}- e2e /);
  assert.doesNotMatch(partOf({ verdicts: verdicts.slice(0, 1), limits, ...made }), /Not passed/);
});

test("keeps a test's name on one line if it fits", () => {
  const name = `[sig-node] ${"a pod should run ".repeat(10).trim()}`;
  const text = partOf({ verdicts: [verdict("e2e_node", name, "timed out")], limits: [], ...made });
  assert.ok(text.includes(`\`${name}\`:`), text);
});

test("breaks long names and messages into short lines, but never where a Markdown block would begin", () => {
  const name = `[sig-node] ${"A container - with # hooks ".repeat(16).trim()}`;
  const text = partOf({ verdicts: [verdict("e2e", name, "timed out ".repeat(24).trim())], limits: [], ...made });
  const lines = text.split("\n");
  assert.deepEqual(
    lines.filter((line) => line.length > 140),
    [],
  );
  assert.ok(
    lines
      .map((line) => line.trim())
      .join(" ")
      .includes(name),
  );
  assert.deepEqual(
    lines.filter((line) => /^\s+[-#] /.test(line) && !line.includes("e2e")),
    [],
  );
});

test("shows names literally, including backticks", () => {
  assert.equal(
    failureLine(verdict("e2e", "[sig-a] if `b` is", ""), []),
    "- e2e `` [sig-a] if `b` is ``: failed; the cause is not known yet",
  );
});
