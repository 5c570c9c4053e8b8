import assert from "node:assert/strict";
import { test, type TestContext } from "node:test";
import type { GraftedNode, GraftedNodeStatus } from "../../../src/fleet/grafted-node.ts";
import { createStatusWriter } from "../../../src/fleet/member-status.ts";
import { onAbort } from "../../../src/lib/runnables.ts";
import type { Node } from "../../../src/objects.ts";
import { createReportedNode } from "../../../src/report/reported-node.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { fakeClient, silent } from "../api/fake-client.ts";

const object: GraftedNode = {
  metadata: { name: "edge-1", namespace: "edge", uid: "1", generation: 1 },
  spec: { ssh: { host: "machine" } },
};
const ready = { type: "Ready", status: "True", reason: "KubeletReady", message: "" } as const;
const node: Node = { metadata: { name: "edge-1" }, status: { conditions: [ready] } };

/** The writer of one object's status, while the object's node starts. */
function start(t: TestContext) {
  const clock = fakeClock();
  const client = fakeClient(() => ({}));
  const report = createReportedNode({ name: "edge-1", provider: "ssh" });
  let pods = 0;
  const input = { object, refused: undefined, stopped: undefined, hasLeft: false, template: undefined, epoch: 4 };
  const status = createStatusWriter({ client, report, clock, log: silent }, () => input);
  const unsubscribe = report.onChange(status.changed);
  const stop = new AbortController();
  const ended = status.during(() => onAbort(stop.signal), stop.signal);
  t.after(async () => {
    unsubscribe();
    stop.abort();
    await ended;
  });
  return {
    clock,
    report,
    changed: status.changed,
    written: () => client.calls.map(({ body }) => (body as { status: GraftedNodeStatus }).status),
    setPods: (count: number) => void (pods = count),
    becomeReady() {
      report.onProgress({ isIdentified: true, isClaimed: true });
      report.onTargetOpened("local");
      report.onRunning({
        standalone: false,
        node: () => node,
        onChange: () => () => {},
        pods: () => [],
        podCount: () => pods,
        summary: () => Promise.reject(new Error("unused")),
      });
    },
  };
}

const reasonOf = (status: GraftedNodeStatus | undefined) =>
  status?.conditions?.find(({ type }) => type === "Ready")?.reason;

test("writes the status of a node that is Ready within two seconds once", async (t) => {
  const { clock, report, written, becomeReady } = start(t);
  report.onTargetOpened("local");
  await clock.advance(600);
  report.onProgress({ isIdentified: true });
  await clock.advance(600);
  becomeReady();
  await clock.advance(5_000);
  assert.deepEqual(written().map(reasonOf), ["NodeReady"]);
});

test("writes the status of a node that takes longer every two seconds while it changes", async (t) => {
  const { clock, report, written } = start(t);
  report.onTargetOpened("local");
  await clock.advance(2_000);
  assert.deepEqual(written().map(reasonOf), ["CertificatePending"]);
  report.onProgress({ isIdentified: true });
  await clock.advance(1_900);
  assert.equal(written().length, 1);
  await clock.advance(100);
  assert.deepEqual(written().map(reasonOf), ["CertificatePending", "NotLocked"]);
});

test("writes within half a second why a node cannot start", async (t) => {
  const { clock, report, written } = start(t);
  report.onProgress({ isIdentified: true, trouble: { reason: "LoginRefused", message: "no" } });
  await clock.advance(500);
  assert.deepEqual(written().map(reasonOf), ["LoginRefused"]);
});

test("writes a changed number of pods ten seconds after the last write, even if nothing changes after that", async (t) => {
  const { clock, changed, written, setPods, becomeReady } = start(t);
  becomeReady();
  await clock.advance(500);
  setPods(3);
  changed();
  await clock.advance(9_000);
  assert.deepEqual(
    written().map(({ pods }) => pods),
    [0],
  );
  await clock.advance(1_000);
  assert.deepEqual(
    written().map(({ pods }) => pods),
    [0, 3],
  );
  setPods(4);
  changed();
  await clock.advance(10_000);
  assert.equal(written().at(-1)?.pods, 4);
});
