import assert from "node:assert/strict";
import { test } from "node:test";
import { planRotation, rotatedFiles } from "../../../src/logs/rotated-files.ts";

const at = (second: number, suffix = "") => `0.log.20260101-00000${second}${suffix}`;

test("treats leftovers of interrupted rotations as garbage", () => {
  const half = [at(1, ".tmp"), at(1), at(2), at(2, ".gz"), at(3)];
  assert.deepEqual(planRotation(half, 10), { remove: [at(1, ".tmp"), at(2)], compress: [at(1), at(3)] });
});

test("removes the oldest files so that, with the log and its rotated copy, the number of files is within the limit", () => {
  const names = [at(3), at(1, ".gz"), at(2, ".gz")];
  assert.deepEqual(planRotation(names, 5), { remove: [], compress: [at(3)] });
  assert.deepEqual(planRotation(names, 4), { remove: [at(1, ".gz")], compress: [at(3)] });
  assert.deepEqual(planRotation(names, 3), { remove: [at(1, ".gz"), at(2, ".gz")], compress: [at(3)] });
  assert.deepEqual(planRotation(names, 2), { remove: [at(1, ".gz"), at(2, ".gz"), at(3)], compress: [] });
});

test("sorts rotated files by time, newest first, compressed or not", () => {
  const names = ["0.log", at(1), at(3), at(2, ".gz"), at(1, ".gz"), "0.log.x", "10.log.20260101-000009", at(4, ".tmp")];
  assert.deepEqual(rotatedFiles(names, "0.log"), [
    { name: at(3), rotatedAt: ".20260101-000003" },
    { name: at(2, ".gz"), rotatedAt: ".20260101-000002", isCompressed: true },
    { name: at(1), rotatedAt: ".20260101-000001" },
  ]);
});

test("sorts Docker's rotated files by number, lowest first", () => {
  const names = ["a-json.log", "a-json.log.10", "a-json.log.2", "a-json.log.1", "a-json.log.3.gz", "a-json.log.0"];
  const found = rotatedFiles(names, "a-json.log");
  assert.deepEqual(found, [{ name: "a-json.log.1" }, { name: "a-json.log.2" }, { name: "a-json.log.10" }]);
});
