import assert from "node:assert/strict";
import { test } from "node:test";
import { CodedError } from "../../../src/lib/errors.ts";
import { klogText } from "../../../src/lib/klog-text.ts";
import { createTextLogger } from "../../../src/lib/log.ts";

function logged() {
  const lines: string[] = [];
  return { lines, log: createTextLogger(5, { write: (line: string) => void lines.push(line) }, { pid: 42 }) };
}

test("writes klog's header, the quoted message and the fields", () => {
  const { lines, log } = logged();
  log.child({ node: "a" }).info({ pod: "x/y", bytes: 5, cause: { of: ["it"] } }, 'said "so"');
  const [header, rest] = lines.join("").split("] ", 2);
  assert.match(header ?? "", /^I\d{4} \d\d:\d\d:\d\d\.\d{6} {6}42 klog-text\.test\.ts:14$/);
  assert.equal(rest, '"said \\"so\\"" node="a" pod="x/y" bytes=5 cause={"of":["it"]}\n');
});

test("writes klog's three severities, and local time", () => {
  const { lines, log } = logged();
  for (const level of ["trace", "debug", "info", "warn", "error"] as const) log[level]({}, level);
  assert.equal(lines.map(([letter]) => letter).join(""), "IIIWE");
  const at = new Date(2026, 10, 2, 3, 4, 5, 67);
  klogText({ write: (line: string) => void lines.push(line) }, 1).write(
    `${JSON.stringify({ level: 30, time: at.toISOString(), msg: "m", caller: "a.ts:2" })}\n`,
  );
  assert.equal(lines.at(-1), 'I1102 03:04:05.067000       1 a.ts:2] "m"\n');
});

test("escapes line breaks in fields, logs causes of errors, and redacts secrets", () => {
  const { lines, log } = logged();
  const err = new CodedError("unavailable", "outer\nE1122 forged", { cause: new CodedError("not_found", "inner") });
  log.error({ err, token: "s3cret", pod: "a\nb" }, "failed");
  assert.equal(lines.join("").split("\n").length, 2);
  assert.equal(lines.join("").includes("s3cret"), false);
  assert.match(lines.join(""), /\] "failed" err="outer\\nE1122 forged: inner" /);
});
