import assert from "node:assert/strict";
import { test } from "node:test";
import { type AskedPod, askedPod } from "../../../src/roles.ts";
import { createPodTable } from "../../../src/state/pod-table.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { aPod, aSandbox, observe } from "../../fakes/pods.ts";

const pod = (uid: string, name = uid): AskedPod => askedPod(aPod({}, { uid, name }));

function rig() {
  const clock = fakeClock();
  const table = createPodTable(clock);
  const own = table.field<string>();
  const ended: string[] = [];
  table.onEnd((uid) => void ended.push(uid));
  const see = (uid: string, observedAt = clock.monotonic()) =>
    table.seen.writer.set(uid, { ...observe([aSandbox()], []), uid, observedAt });
  const works = (uid: string) => table.worker.writer.set(uid, { phase: "syncing", pod: undefined });
  return { clock, ...table, own, ended, see, works };
}

test("a row lives while its object or its worker does, and its end frees every column", () => {
  const { asked, worker, status, own, ended, works } = rig();
  asked.writer.set("a", pod("a"));
  works("a");
  assert.ok(status.writer.set("a", { phase: "Running" }));
  assert.ok(own.set("a", "mine"));
  asked.writer.delete("a");
  assert.deepEqual([status.reader.get("a"), own.get("a"), ended], [{ phase: "Running" }, "mine", []]);
  worker.writer.delete("a");
  assert.deepEqual([status.reader.get("a"), own.get("a"), ended], [undefined, undefined, ["a"]]);
});

test("with its worker goes what was known of a pod's life; the object, and what is shown of it, stay", () => {
  const { asked, shown, worker, status, own, ended, works, see } = rig();
  asked.writer.set("a", pod("a"));
  shown.writer.set("a", aPod({}, { uid: "a" }));
  see("a");
  works("a");
  status.writer.set("a", { phase: "Failed" });
  own.set("a", "mine");
  worker.writer.delete("a");
  assert.deepEqual([status.reader.get("a"), own.get("a"), ended], [undefined, undefined, ["a"]]);
  assert.ok(asked.reader.get("a") && shown.reader.get("a"));
});

test("writes that come after the end are dropped: a status, a field, a pass over containers", () => {
  const { asked, status, starts, own } = rig();
  asked.writer.set("a", pod("a"));
  asked.writer.delete("a");
  assert.deepEqual(
    [
      status.writer.set("a", { phase: "Running" }),
      own.set("a", "mine"),
      starts.writer.set("a", { underWay: new Set(), failures: new Map() }),
    ],
    [false, false, false],
  );
  assert.deepEqual([status.reader.list(), own.list(), starts.reader.list()], [[], [], []]);
});

test("a look that began before a row's end does not bring it back; a later one shows what is left in the runtime", async () => {
  const { asked, seen, see, clock, status } = rig();
  const before = clock.monotonic();
  asked.writer.set("a", pod("a"));
  see("a");
  await clock.advance(10);
  asked.writer.delete("a");
  assert.equal(seen.reader.get("a"), undefined, "freed with its row");
  assert.equal(see("a", before), false);
  await clock.advance(10);
  assert.equal(see("a"), true);
  assert.equal(status.writer.set("a", { phase: "Running" }), true, "a row, until the runtime has the pod no more");
  seen.writer.delete("a");
  assert.equal(status.reader.get("a"), undefined);
});

test("snapshots are the same until something changes, and tell nothing of what comes later", () => {
  const { asked } = rig();
  asked.writer.set("a", pod("a"));
  const first = asked.reader.list();
  assert.equal(asked.reader.list(), first);
  asked.writer.set("b", pod("b"));
  assert.deepEqual([first.length, asked.reader.list().length], [1, 2]);
});

test("a pod is found by its name; of two of one name the other when one goes", () => {
  const { asked } = rig();
  for (const uid of ["a", "b"]) asked.writer.set(uid, pod(uid, "web"));
  assert.equal(asked.reader.byName("default", "web")?.metadata.uid, "b");
  asked.writer.delete("b");
  assert.equal(asked.reader.byName("default", "web")?.metadata.uid, "a");
  asked.writer.delete("a");
  assert.equal(asked.reader.byName("default", "web"), undefined);
});
