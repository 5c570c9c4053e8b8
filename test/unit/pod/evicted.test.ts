import assert from "node:assert/strict";
import { test } from "node:test";
import { evicted } from "../../../src/pod/evicted.ts";
import { aPod } from "../../fakes/pods.ts";

const preempted = { reason: "Preempting", message: "makes room", disruption: "it was preempted" };

test("a pod that its node ends has failed for that reason, and says that it was disrupted", () => {
  const { phase, reason, message, conditions } = evicted(aPod(), { phase: "Running", conditions: [] }, preempted);
  assert.deepEqual([phase, reason, message], ["Failed", "Preempting", "makes room"]);
  assert.deepEqual(
    conditions?.map(({ type, message: why }) => [type, why]),
    [["DisruptionTarget", "it was preempted"]],
  );
});

test("one whose containers end well when they are stopped has succeeded, and was disrupted all the same", () => {
  const { phase, reason, conditions } = evicted(aPod(), { phase: "Succeeded", conditions: [] }, preempted);
  assert.deepEqual([phase, reason, conditions?.length], ["Succeeded", undefined, 1]);
});

test("a deadline that is over fails a pod whatever its containers say", () => {
  const late = { reason: "DeadlineExceeded", message: "too long", disruption: undefined };
  const status = evicted(aPod(), { phase: "Succeeded" }, late);
  assert.deepEqual(status, { phase: "Failed", reason: "DeadlineExceeded", message: "too long" });
});
