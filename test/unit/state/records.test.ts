import assert from "node:assert/strict";
import { test } from "node:test";
import { type DesiredPod, desiredPod } from "../../../src/roles.ts";
import { createPodTable } from "../../../src/state/pod-table.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { aPod, aSandbox, observe } from "../../fakes/pods.ts";

const pod = (uid: string, name = uid): DesiredPod => desiredPod(aPod({}, { uid, name }));

function rig() {
  const clock = fakeClock();
  const table = createPodTable(clock);
  const own = table.privateColumn<string>();
  const ended: string[] = [];
  table.onEnd((uid) => void ended.push(uid));
  const see = (uid: string, observedAt = clock.monotonic()) =>
    table.podCache.writer.set(uid, { ...observe([aSandbox()], []), uid, observedAt });
  const works = (uid: string) => table.worker.writer.set(uid, { phase: "syncing", pod: undefined });
  return { clock, ...table, own, ended, see, works };
}

test("keeps a record while its object or its worker exists, and then frees every column", () => {
  const { desired, worker, status, own, ended, works } = rig();
  desired.writer.set("a", pod("a"));
  works("a");
  assert.ok(status.writer.set("a", { phase: "Running" }));
  assert.ok(own.set("a", "mine"));
  desired.writer.delete("a");
  assert.deepEqual([status.reader.get("a"), own.get("a"), ended], [{ phase: "Running" }, "mine", []]);
  worker.writer.delete("a");
  assert.deepEqual([status.reader.get("a"), own.get("a"), ended], [undefined, undefined, ["a"]]);
});

test("frees worker columns with the worker; keeps the object and its API copy", () => {
  const { desired, apiPods, worker, status, own, ended, works, see } = rig();
  desired.writer.set("a", pod("a"));
  apiPods.writer.set("a", aPod({}, { uid: "a" }));
  see("a");
  works("a");
  status.writer.set("a", { phase: "Failed" });
  own.set("a", "mine");
  worker.writer.delete("a");
  assert.deepEqual([status.reader.get("a"), own.get("a"), ended], [undefined, undefined, ["a"]]);
  assert.ok(desired.reader.get("a") && apiPods.reader.get("a"));
});

test("drops writes after the end of a record: status, private columns, container starts", () => {
  const { desired, status, starts, own } = rig();
  desired.writer.set("a", pod("a"));
  desired.writer.delete("a");
  assert.deepEqual(
    [
      status.writer.set("a", { phase: "Running" }),
      own.set("a", "mine"),
      starts.writer.set("a", { inProgress: new Set(), failures: new Map() }),
    ],
    [false, false, false],
  );
  assert.deepEqual([status.reader.list(), own.list(), starts.reader.list()], [[], [], []]);
});

test("an observation from before the end of a record does not re-create it; a later one does", async () => {
  const { desired, podCache, see, clock, status } = rig();
  const before = clock.monotonic();
  desired.writer.set("a", pod("a"));
  see("a");
  await clock.advance(10);
  desired.writer.delete("a");
  assert.equal(podCache.reader.get("a"), undefined, "freed with its row");
  assert.equal(see("a", before), false);
  await clock.advance(10);
  assert.equal(see("a"), true);
  assert.equal(status.writer.set("a", { phase: "Running" }), true, "a row, until the runtime has the pod no more");
  podCache.writer.delete("a");
  assert.equal(status.reader.get("a"), undefined);
});

test("returns the same snapshot until a change, and never modifies a snapshot", () => {
  const { desired } = rig();
  desired.writer.set("a", pod("a"));
  const first = desired.reader.list();
  assert.equal(desired.reader.list(), first);
  desired.writer.set("b", pod("b"));
  assert.deepEqual([first.length, desired.reader.list().length], [1, 2]);
});

test("finds pods by name, and the remaining pod once one of two pods with the same name is removed", () => {
  const { desired } = rig();
  for (const uid of ["a", "b"]) desired.writer.set(uid, pod(uid, "web"));
  assert.equal(desired.reader.byName("default", "web")?.metadata.uid, "b");
  desired.writer.delete("b");
  assert.equal(desired.reader.byName("default", "web")?.metadata.uid, "a");
  desired.writer.delete("a");
  assert.equal(desired.reader.byName("default", "web"), undefined);
});
