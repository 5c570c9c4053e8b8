import assert from "node:assert/strict";
import { test } from "node:test";
import { type GraftedNode, graftedNodePath, isReadyWithOwner } from "../../../src/fleet/grafted-node.ts";
import { createOwnership, type OwnershipDeps } from "../../../src/fleet/ownership.ts";
import { silentLog } from "../../../src/lib/log.ts";
import { fakeClock } from "../../fakes/clock.ts";

const namespace = "edge";

/** A replica that owns Ready objects, and another replica that accepts them. */
function replicaThatLeaves(count: number) {
  const clock = fakeClock();
  const objects = new Map<string, GraftedNode>();
  const setOwner = (name: string, uid: string, epoch: number, observedEpoch: number) =>
    void objects.set(name, {
      metadata: { name, namespace, uid: `uid-${name}`, resourceVersion: "1" },
      spec: {},
      status: {
        owner: { replica: uid, uid, epoch, since: "" },
        observedEpoch,
        conditions: [{ type: "Ready", status: "True", reason: "", message: "", lastTransitionTime: "" }],
      },
    } as unknown as GraftedNode);
  for (let index = 0; index < count; index += 1) setOwner(`m-${index}`, "self", 1, 1);
  const nameOf = (path: string) => path.replace("/status", "").split("/").at(-1) ?? "";
  const client = {
    get: async (path: string) => objects.get(nameOf(path)),
    patch: async (path: string) => setOwner(nameOf(path), "", 1, 1),
  } as unknown as OwnershipDeps<GraftedNode>["client"];
  const ownership = createOwnership<GraftedNode>({
    clock,
    log: silentLog(),
    client,
    self: { name: "self", uid: "self" },
    membership: {
      isAlive: () => true,
      accepting: () => ["other"],
      isOutside: () => false,
      mayTake: () => false,
    },
    objects: () => [...objects.values()],
    path: graftedNodePath,
    stop: async () => undefined,
    resume: () => undefined,
    isServed: isReadyWithOwner,
  });
  return {
    clock,
    ownership,
    names: (uid: string) =>
      [...objects.values()].filter(({ status }) => status?.owner?.uid === uid).map(({ metadata }) => metadata.name),
    /** The other replica takes the object, and serves it if `serves`. */
    take: (name: string, serves: boolean) => setOwner(name, "other", 2, serves ? 2 : 1),
  };
}

test("a replica that leaves hands over four machines, and each further one when one of them is served again", async () => {
  const { clock, ownership, names, take } = replicaThatLeaves(10);
  const over = ownership.handOverAll(new AbortController().signal);
  await clock.advance(1_000);
  const first = names("");
  assert.equal(first.length, 4);
  for (const name of first) take(name, false);
  await clock.advance(1_000);
  assert.deepEqual([names("").length, names("self").length], [0, 6], "they are owned, but not served yet");
  for (const name of first.slice(0, 2)) take(name, true);
  await clock.advance(1_000);
  assert.deepEqual([names("").length, names("self").length], [2, 4]);
  await clock.advance(30_000);
  assert.deepEqual([names("").length, names("self").length], [6, 0], "it does not wait for them without end");
  await over;
});
