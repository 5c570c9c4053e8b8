import assert from "node:assert/strict";
import { test } from "node:test";
import type { GraftedNode } from "../../../src/fleet/grafted-node.ts";
import { activeMembers, type GraftedNodePool, type PoolMember, withDefaults } from "../../../src/fleet/pool.ts";

const pool = (spec: GraftedNodePool["spec"]): GraftedNodePool => ({
  metadata: { name: "edge", namespace: "graftlet", uid: "p" },
  spec,
});
const member = (name: string, more: Partial<PoolMember> = {}): PoolMember => ({
  name,
  mayBeActive: true,
  wasActive: false,
  isServed: false,
  pods: 0,
  ...more,
});
const active = (replicas: number | undefined, members: readonly PoolMember[]) =>
  [...activeMembers(pool(replicas === undefined ? {} : { replicas }), members)].toSorted();

test("an object's fields override those of its pool, even within records; lists are replaced as a whole", () => {
  const object: GraftedNode = {
    metadata: { name: "edge-1", namespace: "graftlet", uid: "1" },
    spec: { ssh: { host: "a" }, labels: { site: "north" }, taints: [], kubeletConfiguration: { maxPods: 9 } },
  };
  const template = {
    ssh: { host: "ignored", user: "ubuntu", secretRef: { name: "shared" } },
    labels: { site: "south", tier: "edge" },
    taints: [{ key: "a", effect: "NoSchedule" }],
    kubeletConfiguration: { maxPods: 30, podPidsLimit: 100 },
    network: "isolated",
  };
  assert.deepEqual(withDefaults(object, pool({ template })).spec, {
    ssh: { host: "a", user: "ubuntu", secretRef: { name: "shared" } },
    labels: { site: "north", tier: "edge" },
    taints: [],
    kubeletConfiguration: { maxPods: 9, podPidsLimit: 100 },
    network: "isolated",
  });
  assert.equal(withDefaults(object, undefined), object);
  assert.equal(withDefaults(object, pool({})), object);
});

test("all members are active unless the pool has more members than replicas", () => {
  assert.deepEqual(active(undefined, [member("b"), member("a")]), ["a", "b"]);
  assert.deepEqual(active(5, [member("b"), member("a")]), ["a", "b"]);
  assert.deepEqual(active(0, [member("b"), member("a")]), []);
});

test("members that are already nodes stay active; others join in the order of their names", () => {
  const members = [member("a"), member("b", { isServed: true }), member("c"), member("d", { isServed: true })];
  assert.deepEqual(active(3, members), ["a", "b", "d"]);
});

test("scaling down a pool keeps the members with the most pods", () => {
  const served = (name: string, pods: number) => member(name, { isServed: true, pods });
  assert.deepEqual(active(2, [served("a", 1), served("b", 7), served("c", 3)]), ["b", "c"]);
});

test("a member with active: false is never active", () => {
  assert.deepEqual(active(2, [member("a", { mayBeActive: false, isServed: true, pods: 9 }), member("b")]), ["b"]);
});
