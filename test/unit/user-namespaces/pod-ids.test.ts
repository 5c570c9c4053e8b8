import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { silentLog } from "../../../src/lib/log.ts";
import { CodedError } from "../../../src/lib/errors.ts";
import type { HostFs } from "../../../src/seams/host.ts";
import { createPodIds } from "../../../src/user-namespaces/pod-ids.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { fakeHost } from "../../fakes/host.ts";
import { aPod } from "../../fakes/pods.ts";
import { never } from "../../fakes/signals.ts";

const unit = 65_536;
const root = "/var/lib/kubelet";

/** A target with a few ranges, whose node can restart and whose file system can fail. */
function targetWith({ ranges = 4 }: { readonly ranges?: number } = {}) {
  const host = fakeHost({ clock: fakeClock() });
  const line = `0: kubelet ${unit} ${ranges * unit}\n`;
  host.program("id", () => 0);
  host.program("getsubids", (_args, { stdout }) => {
    stdout.write(line);
    return 0;
  });
  let refuses = false;
  const apply: HostFs["apply"] = (changes, signal) =>
    refuses ? Promise.reject(new CodedError("unavailable", "no answer")) : host.fs.apply(changes, signal);
  const start = () => {
    const settings = { idsPerPod: unit, maxPods: ranges };
    const fs = { ...host.fs, list: host.fs.list, readFile: host.fs.readFile, apply };
    const log = silentLog();
    return createPodIds({ host: { run: host.run, fs }, rootDir: root, settings, clock: fakeClock(), log });
  };
  return {
    host,
    start,
    refuse: (now: boolean) => void (refuses = now),
    has: (uid: string) =>
      host.fs.readFile(`${root}/pods/${uid}/userns`).then(
        () => true,
        () => false,
      ),
    removeDirectory: (uid: string) => host.fs.apply([{ kind: "remove", path: `${root}/pods/${uid}`, recursive: true }]),
  };
}

const podOf = (uid: string) => {
  const pod = aPod({ hostUsers: false });
  return { ...pod, metadata: { ...pod.metadata, uid } };
};
const first = async (ids: ReturnType<typeof createPodIds>, uid: string) => (await ids.rangeOf(podOf(uid), never)).first;

test("reads nothing before the first pod with a user namespace", async () => {
  const target = targetWith();
  const ids = target.start();
  ids.release("other");
  assert.deepEqual(target.host.commands, []);
  await first(ids, "a");
  assert.equal(target.host.commands.length, 3);
  await first(ids, "b");
  assert.equal(target.host.commands.length, 3);
});

test("a pod keeps its range across restarts, and the next one gets it once the pod has ended", async () => {
  const target = targetWith({ ranges: 2 });
  const before = target.start();
  const [a, b] = [await first(before, "a"), await first(before, "b")];
  assert.notEqual(a, b);
  const after = target.start();
  assert.deepEqual([await first(after, "b"), await first(after, "a")], [b, a]);
  await assert.rejects(first(after, "c"), {
    message: "create user namespace: could not find an empty slot to allocate a user namespace",
  });
  after.release("a");
  assert.equal(await first(after, "c"), a);
  assert.equal(await target.has("a"), false);
});

test("finds the range of a pod whose end a restarted node did not observe", async () => {
  const target = targetWith({ ranges: 2 });
  const before = target.start();
  await first(before, "a");
  const after = target.start();
  after.release("a");
  await first(after, "b");
  await target.removeDirectory("a");
  assert.equal(typeof (await first(after, "c")), "number");
});

test("a range whose file cannot be written or removed is never given to two pods", async () => {
  const target = targetWith({ ranges: 2 });
  const ids = target.start();
  const a = await first(ids, "a");
  target.refuse(true);
  await assert.rejects(first(ids, "b"), { message: "create user namespace: no answer" });
  ids.release("a");
  target.refuse(false);
  assert.notEqual(await first(ids, "b"), a);
  await target.removeDirectory("a");
  assert.equal(await first(ids, "c"), a);
});

test("writes the file again for a pod whose directory was removed", async () => {
  const target = targetWith();
  const ids = target.start();
  const own = await first(ids, "a");
  await target.removeDirectory("a");
  assert.equal(await first(ids, "a"), own);
  assert.equal(await target.has("a"), true);
});

test("a damaged file blocks new ranges until its pod is gone", async () => {
  const target = targetWith();
  await first(target.start(), "a");
  target.host.files.put(`${root}/pods/a/userns`, { data: "{}" });
  const ids = target.start();
  await assert.rejects(first(ids, "b"), {
    message:
      'record pod mappings for existing pod "a": invalid user namespace configuration: no more than one mapping allowed.',
  });
  await target.removeDirectory("a");
  await first(ids, "b");
});

const steps = fc.array(
  fc.record({ pod: fc.integer({ min: 0, max: 7 }), does: fc.constantFrom("start", "start", "end", "restart", "fail") }),
  { maxLength: 40 },
);

test("pods that live at the same time never share IDs, whatever fails or restarts, and all ranges are free at the end", async () => {
  await fc.assert(
    fc.asyncProperty(steps, async (todo) => {
      const target = targetWith({ ranges: 9 });
      let ids = target.start();
      const live = new Map<string, number>();
      for (const { pod, does } of todo) {
        const uid = `pod-${pod}`;
        if (does === "restart") ids = target.start();
        target.refuse(does === "fail");
        if (does === "start") {
          const own = await first(ids, uid);
          assert.equal(own, live.get(uid) ?? own);
          live.set(uid, own);
        } else if (does === "fail" && !live.has(uid)) await first(ids, uid).catch(() => undefined);
        else if (does === "end" || does === "fail") {
          live.delete(uid);
          ids.release(uid);
          await first(ids, "observer").catch(() => undefined);
          target.refuse(false);
          await target.removeDirectory(uid);
        }
        target.refuse(false);
        assert.equal(new Set(live.values()).size, live.size);
      }
      for (const uid of ["observer", ...live.keys()]) {
        ids.release(uid);
        await target.removeDirectory(uid);
      }
      const all = await Promise.all(Array.from({ length: 9 }, (_, at) => first(ids, `next-${at}`)));
      assert.equal(new Set(all).size, 9);
    }),
    { numRuns: 60 },
  );
});
