import assert from "node:assert/strict";
import { test } from "node:test";
import { createObservedFleet, type KnownFleet } from "../../../src/fleet/fleet-report.ts";
import type { FleetCondition, GraftedNode, GraftedNodeStatus } from "../../../src/fleet/grafted-node.ts";

const self = { name: "pod-a", uid: "a" };
const ready = (status: "True" | "False", reason = "NodeReady", message = ""): FleetCondition => ({
  type: "Ready",
  status,
  reason,
  message,
  lastTransitionTime: "",
});

/** An object whose owner, in epoch 2, has written its conditions. */
const object = (name: string, owner: string, status: Partial<GraftedNodeStatus> = {}): GraftedNode => ({
  metadata: { name, namespace: "edge", uid: name },
  spec: { ssh: {} },
  status: {
    observedEpoch: 2,
    conditions: [ready("True")],
    owner: { replica: owner && `pod-${owner}`, uid: owner, epoch: 2, since: "" },
    ...status,
  },
});

/** A release with the replicas a, b and c, of which `dead` have died. This process serves the machine `own`. */
function known(objects: readonly GraftedNode[], dead: readonly string[] = [], isCurrent = true): KnownFleet {
  const alive = ["c", "b", "a"].filter((uid) => !dead.includes(uid));
  return {
    isListed: true,
    objects,
    members: { has: (name) => name === "own" },
    sharing: {
      membership: {
        isAlive: (uid) => alive.includes(uid),
        isCurrent: () => isCurrent,
        replicas: () => alive.map((uid) => ({ name: `pod-${uid}`, uid, isLeaving: uid === "c" })),
      },
    },
  };
}
const report = (of: KnownFleet) => createObservedFleet(self, () => of).report();

test("reports the machines that other replicas serve, and how many each replica owns", () => {
  const endpoint = { address: "192.0.2.7", port: 10_250 };
  const { machines, ...release } = report(
    known([
      object("m-2", "c", { conditions: [ready("False", "LinkDown", "it does not answer")] }),
      object("own", "a"),
      object("m-1", "b", { endpoint, pods: 3 }),
    ]),
  );
  assert.deepEqual(release, {
    replica: "pod-a",
    current: true,
    replicas: [
      { name: "pod-a", leaving: false, machines: 1 },
      { name: "pod-b", leaving: false, machines: 1 },
      { name: "pod-c", leaving: true, machines: 1 },
    ],
  });
  assert.deepEqual(machines, [
    { name: "m-1", owner: "pod-b", ready: true, reason: "NodeReady", message: "", address: "192.0.2.7", pods: 3 },
    { name: "m-2", owner: "pod-c", ready: false, reason: "LinkDown", message: "it does not answer" },
  ]);
});

test("a machine without a living owner is not ready, whatever its former owner has written", () => {
  const { machines } = report(known([object("free", ""), object("lost", "b"), object("new", "b", {})], ["b"]));
  for (const { name, owner, ready: isReady, reason } of machines)
    assert.deepEqual([owner, isReady, reason], [undefined, false, "Unowned"], name);
  assert.equal(machines.length, 3);
  const { owner: _none, ...unowned } = object("never", "").status ?? {};
  const never: GraftedNode = { ...object("never", ""), status: unowned };
  assert.equal(report(known([never])).machines[0]?.reason, "Unowned");
});

test("conditions of a former owner do not count for the new one", () => {
  const { machines } = report(known([object("moved", "b", { observedEpoch: 1 })]));
  assert.deepEqual(
    machines.map(({ owner, ready: isReady, reason }) => [owner, isReady, reason]),
    [["pod-b", false, "Starting"]],
  );
});

test("without the API server, owners stay as last known", () => {
  const { current, machines } = report(known([object("m", "b")], ["b"], false));
  assert.deepEqual([current, machines[0]?.owner, machines[0]?.ready], [false, "pod-b", true]);
  assert.equal(report({ ...known([]), isListed: false }).current, false);
});

test("bounds reasons and messages", () => {
  const conditions = [ready("False", "R".repeat(1_000), "m".repeat(32_768))];
  const [machine] = report(known([object("m", "b", { conditions })])).machines;
  assert.deepEqual([machine?.reason.length, machine?.message.length], [129, 513]);
});
