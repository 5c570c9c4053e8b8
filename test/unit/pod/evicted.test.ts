import assert from "node:assert/strict";
import { test } from "node:test";
import { evictedStatus } from "../../../src/sync/passes.ts";
import { aPod } from "../../fakes/pods.ts";

const preempted = { reason: "Preempting", message: "makes room", disruption: "it was preempted" };

test("an evicted pod is Failed with the reason and a DisruptionTarget condition", () => {
  const { phase, reason, message, conditions } = evictedStatus(aPod(), { phase: "Running", conditions: [] }, preempted);
  assert.deepEqual([phase, reason, message], ["Failed", "Preempting", "makes room"]);
  assert.deepEqual(
    conditions?.map(({ type, message: why }) => [type, why]),
    [["DisruptionTarget", "it was preempted"]],
  );
});

test("an evicted pod whose containers exit successfully is Succeeded, with a DisruptionTarget condition", () => {
  const { phase, reason, conditions } = evictedStatus(aPod(), { phase: "Succeeded", conditions: [] }, preempted);
  assert.deepEqual([phase, reason, conditions?.length], ["Succeeded", undefined, 1]);
});

test("a pod past its deadline is Failed regardless of its containers' exit codes", () => {
  const late = { reason: "DeadlineExceeded", message: "too long", disruption: undefined };
  const status = evictedStatus(aPod(), { phase: "Succeeded" }, late);
  assert.deepEqual(status, { phase: "Failed", reason: "DeadlineExceeded", message: "too long" });
});
