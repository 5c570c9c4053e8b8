import assert from "node:assert/strict";
import { test } from "node:test";
import type { GraftedNodePool } from "../../../src/fleet/pool.ts";
import { machine, namespace, start } from "./one-replica.ts";

test("serves each object on a separate port that no other listener of the process uses", async (t) => {
  const { did, reported, until, listed } = start(t, [machine("a"), machine("b")]);
  await until(() => did.length === 2);
  assert.deepEqual(did.toSorted(), ["start a 10251", "start b 10252"]);
  assert.deepEqual([...reported], ["a", "b"]);
  assert.equal(listed(), 1);
});

test("with three hundred objects, adding one starts only its node; deleting one stops only its node and frees the port", async (t) => {
  const many = Array.from({ length: 300 }, (_, index) => machine(`m-${index}`));
  const { did, reported, send, until } = start(t, many);
  await until(() => did.length === 300);
  did.length = 0;
  const more = machine("more");
  send("ADDED", more);
  await until(() => did.length > 0);
  assert.deepEqual(did, [`start more ${10_251 + 300}`]);
  const [first] = many;
  assert.ok(first);
  send("DELETED", first);
  await until(() => !reported.has("m-0"));
  assert.deepEqual(did.slice(1), ["stop m-0"]);
  send("ADDED", machine("again"));
  await until(() => did.length === 3);
  assert.equal(did[2], "start again 10251");
});

test("does not serve an object while a configuration has a node of its name, or while it represents such a node", async (t) => {
  const shown = machine("a", { static: { release: "r", provider: "ssh" } });
  const { did, send, until, listed } = start(t, [shown, machine("configured"), machine("b")]);
  await until(() => listed() === 1 && did.length > 0);
  assert.deepEqual(did, ["start b 10251"]);
  const released = { ...shown, spec: { ssh: shown.spec.ssh } };
  send("MODIFIED", released);
  await until(() => did.length === 2);
  assert.equal(did[1], "start a 10252");
  send("MODIFIED", shown);
  await until(() => did.length === 3);
  assert.equal(did[2], "stop a");
});

test("takes an object again if its machine knows a later epoch, until it has the latest", async (t) => {
  const { did, until } = start(t, [machine("later")]);
  await until(() => did.includes("epoch 3"));
  assert.deepEqual(
    did.filter((line) => line.startsWith("epoch")),
    ["epoch 1", "epoch 2", "epoch 3"],
  );
});

test("restarts the node of an object that is deleted and created again with the same name", async (t) => {
  const old = machine("a");
  const { did, send, until } = start(t, [old]);
  await until(() => did.length === 1);
  send("DELETED", old);
  send("ADDED", machine("a"));
  await until(() => did.length === 3);
  assert.deepEqual(did, ["start a 10251", "stop a", "start a 10251"]);
});

test("changing a pool's template restarts its members one after another; changing its labels restarts none", async (t) => {
  const poolOf = (template: GraftedNodePool["spec"]["template"]): GraftedNodePool => ({
    metadata: { name: "edge", namespace, uid: "pool" },
    spec: { ...(template && { template }), disruption: { maxUnavailable: 1 } },
  });
  const members = ["a", "b", "c"].map((name) => machine(name, { poolRef: { name: "edge" } }));
  const { did, send, until, now } = start(t, [...members, machine("own")], [poolOf({})]);
  await until(() => did.length === 4);
  did.length = 0;
  send("MODIFIED", poolOf({ labels: { tier: "edge" } }), "graftednodepools");
  const from = now();
  await until(() => now() - from > 3_000);
  assert.equal(did.length, 0, did.join());
  send("MODIFIED", poolOf({ reserved: { cpu: 1 } }), "graftednodepools");
  const times: number[] = [];
  for (const restarts of [1, 2, 3]) {
    await until(() => did.length >= 2 * restarts);
    times.push(now());
  }
  assert.deepEqual(
    did.map((line) => line.split(" ").slice(0, 2).join(" ")),
    ["stop a", "start a", "stop b", "start b", "stop c", "start c"],
  );
  const [first = 0, second = 0, third = 0] = times;
  assert.ok(second - first >= 10_000 && third - second >= 10_000, times.join());
});

test("observes the conditions of each object that is served, and the replicas of each pool", async (t) => {
  const pool: GraftedNodePool = {
    metadata: { name: "p", namespace, uid: "pool", generation: 1, resourceVersion: "1" },
    spec: { replicas: 1 },
  };
  const members = ["a", "b"].map((name) => machine(name, { poolRef: { name: "p" } }));
  const { observed, send, until } = start(t, [...members, machine("c"), machine("configured")], [pool]);
  const seen = () =>
    observed.nodes().map(({ name, pool: of, conditions }) => {
      const ready = conditions.find(({ type }) => type === "Ready");
      return [name, of, ready?.status, ready?.reason].join(" ");
    });
  await until(() => observed.pools()[0]?.ready === 1 && seen().includes("c  True NodeReady"));
  assert.deepEqual(seen(), ["a p True NodeReady", "b p False Inactive", "c  True NodeReady"]);
  assert.deepEqual(observed.pools(), [{ name: "p", wanted: 1, active: 1, ready: 1, updated: 1, isPaused: false }]);
  for (const gone of members) send("DELETED", gone);
  send("DELETED", pool, "graftednodepools");
  await until(() => observed.pools().length === 0);
  assert.deepEqual(seen(), ["c  True NodeReady"]);
});

test("a node does not reread its specification when a status changes, or a Secret that is not a login", async (t) => {
  const pool: GraftedNodePool = { metadata: { name: "edge", namespace, uid: "pool" }, spec: {} };
  const members = ["a", "b", "c"].map((name) => machine(name, { poolRef: { name: "edge" } }));
  const { did, decoded, send, until, now } = start(t, members, [pool]);
  await until(() => did.length === 3);
  const settle = async () => {
    const from = now();
    await until(() => now() - from > 3_000);
  };
  await settle();
  decoded.length = 0;
  const [first] = members;
  assert.ok(first);
  const replicas = { members: 3, replicas: 3, readyReplicas: 1, updatedReplicas: 3, conditions: [] };
  send("MODIFIED", { ...pool, status: replicas }, "graftednodepools");
  send("MODIFIED", { ...first, status: { conditions: [] } });
  send("ADDED", { metadata: { name: "certificates-of-a", namespace, uid: "secret" }, spec: {} }, "secrets");
  await settle();
  assert.deepEqual(decoded, []);
  send("MODIFIED", { ...pool, spec: { template: { labels: { tier: "edge" } } } }, "graftednodepools");
  await until(() => decoded.length >= 3);
});

test("stopping the process stops all nodes", async (t) => {
  const { did, until, stop, ended } = start(t, [machine("a"), machine("b")]);
  await until(() => did.length === 2);
  stop.abort();
  await ended;
  assert.deepEqual(did.slice(2).toSorted(), ["stop a", "stop b"]);
});
