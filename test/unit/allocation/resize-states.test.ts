import assert from "node:assert/strict";
import { test } from "node:test";
import { countActiveResizes } from "../../../src/allocation/resize-states.ts";
import type { WorkerView } from "../../../src/state/pod-table.ts";
import { aColumn } from "../../fakes/state.ts";

test("counts only resizes of pods whose worker has not finished", () => {
  const deferred = { pending: { reason: "Deferred" as const, message: "", generation: 1, since: 0 } };
  const working = (phase: WorkerView["phase"]): WorkerView => ({ phase, pod: undefined });
  const resize = aColumn({ a: deferred, b: deferred, c: deferred, d: { inProgress: { generation: 1 } } });
  const worker = aColumn({ a: working("syncing"), b: working("finished"), d: working("terminating") });
  assert.deepEqual(countActiveResizes(resize, worker), { deferred: 1, infeasible: 0, inProgress: 1 });
});
