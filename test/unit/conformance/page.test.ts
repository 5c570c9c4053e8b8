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

test("a table counts passed of run by area and suite", () => {
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

test("the part names what failed, with its cause where it is known", () => {
  const limits = [{ cause: "no such network", tests: ["e2e [sig-node] B"] }];
  const text = partOf({ verdicts, limits, ...made });
  assert.match(text, /^\*\*3 of 4\*\* passed on 2026-11-21, in 61 minutes on 2 processors\.\n\n\| area/);
  assert.match(
    text,
    /\n\nNot passed:\n\n- e2e `\[sig-node\] B`: failed \(`timed out`\); impossible here: no such network$/,
  );
  assert.match(partOf({ verdicts, limits: [], ...made }), /; the cause is not known yet$/);
  assert.doesNotMatch(partOf({ verdicts: verdicts.slice(0, 1), limits, ...made }), /Not passed/);
});

test("a name is shown as it is, backticks and all", () => {
  assert.equal(
    failureLine(verdict("e2e", "[sig-a] if `b` is", ""), []),
    "- e2e `` [sig-a] if `b` is ``: failed; the cause is not known yet",
  );
});
