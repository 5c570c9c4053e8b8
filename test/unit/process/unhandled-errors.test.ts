import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { join } from "node:path";
import { test } from "node:test";

function processWith(fault: string) {
  const entry = join(import.meta.dirname, "unhandled-errors-entry.ts");
  const { status, stdout, stderr } = spawnSync(process.execPath, [entry, fault], { encoding: "utf8", timeout: 20_000 });
  return { status, said: stdout.trim().split("\n"), complaint: stderr };
}

for (const [fault, message] of [
  ["an error event", /nobody listens/],
  ["a write after the end", /write after end/],
  ["a refused connection", /ECONNREFUSED/],
  ["a closed pipe", /EPIPE|ECONNRESET/],
  ["a rejected promise", /nobody awaits/],
  ["a timer", /JSON/],
  ["a connection handler", /JSON/],
] as const)
  test(`an unhandled error from ${fault} stops only the work in which it occurred`, () => {
    const { status, said, complaint } = processWith(fault);
    assert.deepEqual([status, complaint], [0, ""]);
    const [fails, ...others] = said.slice(2);
    assert.match(fails ?? "", /^a fails: /);
    assert.match(fails ?? "", message);
    assert.deepEqual(others, ["b ends", "done"]);
  });

test("an unhandled error of work that has ended stops nothing", () => {
  const { status, said, complaint } = processWith("an error after the end of the work");
  assert.deepEqual([status, complaint], [0, ""]);
  assert.deepEqual(said.slice(2), ["a ends", "b ends", "done"]);
});

for (const [fault, reason] of [
  ["an error outside all nodes", /^graftlet: unhandled error: SyntaxError: .* at .*unhandled-errors-entry\.ts:\d+/],
  ["an assertion failure in Node.js", /^graftlet: unhandled error \(node a\): Error: this is a bug in Node\.js at /],
  ["a failed memory allocation", /^graftlet: unhandled error \(node a\): RangeError: Array buffer allocation failed/],
  ["endless errors", /^graftlet: unhandled error \(node a\): SyntaxError/],
  ["an error in work that does not stop", /^graftlet: node a did not stop after an unhandled error: SyntaxError/],
] as const)
  test(`exits with a reason in one line after ${fault}`, () => {
    const { status, complaint } = processWith(fault);
    assert.equal(status, 1);
    assert.match(complaint, reason);
    assert.equal(complaint.trim().split("\n").length, 1);
  });
