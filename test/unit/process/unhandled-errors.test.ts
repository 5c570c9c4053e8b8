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
  ["a client of its server", /JSON/],
] as const)
  test(`unhandled: ${fault} stops the work in which it occurred, and no other`, () => {
    const { status, said, complaint } = processWith(fault);
    assert.deepEqual([status, complaint], [0, ""]);
    const [fails, ...others] = said.slice(2);
    assert.match(fails ?? "", /^a fails: /);
    assert.match(fails ?? "", message);
    assert.deepEqual(others, ["b ends", "done"]);
  });

for (const [fault, reason] of [
  ["outside", /^graftlet: unhandled error: SyntaxError: .* at .*unhandled-errors-entry\.ts:\d+/],
  ["assertion", /^graftlet: unhandled error \(node a\): Error: this is a bug in Node\.js at /],
  ["memory", /^graftlet: unhandled error \(node a\): RangeError: Array buffer allocation failed/],
  ["errors without end", /^graftlet: unhandled error \(node a\): SyntaxError/],
  ["work without end", /^graftlet: node a did not stop after an unhandled error: SyntaxError/],
] as const)
  test(`exits with a reason in one line: ${fault}`, () => {
    const { status, complaint } = processWith(fault);
    assert.equal(status, 1);
    assert.match(complaint, reason);
    assert.equal(complaint.trim().split("\n").length, 1);
  });
