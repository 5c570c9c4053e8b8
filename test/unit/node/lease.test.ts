import assert from "node:assert/strict";
import { test } from "node:test";
import { apiError } from "../../../src/api/api-error.ts";
import { CodedError } from "../../../src/lib/errors.ts";
import { createLease } from "../../../src/node/lease.ts";
import type { Lease, Node } from "../../../src/objects.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { fakeClient, silent } from "../api/fake-client.ts";

/** A lease with an API server that stores one. */
function start(node: Node | undefined) {
  const clock = fakeClock();
  let lease: Lease | undefined;
  let failure: Error | undefined;
  const client = fakeClient((call) => {
    if (failure) throw failure;
    if (call.verb === "get" && !lease) throw apiError(404, "");
    if (call.verb === "create" || call.verb === "update") lease = call.body as Lease;
    return lease;
  });
  const stop = new AbortController();
  const running = createLease({
    client,
    nodes: { node: () => node },
    nodeName: "n1",
    durationSeconds: 40,
    clock,
    log: silent,
  }).run(stop.signal);
  return {
    clock,
    lease: () => lease,
    orphan: () => void (lease = lease && { ...lease, metadata: { ...lease.metadata, ownerReferences: [] } }),
    verbs: () => client.calls.map(({ verb }) => verb),
    fail: (error: Error | undefined) => void (failure = error),
    async [Symbol.asyncDispose]() {
      stop.abort();
      await clock.advance(20_000);
      await running;
    },
  };
}

test("creates the lease with the Node as owner, then renews it every quarter of its duration", async () => {
  await using t = start({ metadata: { name: "n1", uid: "u1" } });
  await t.clock.advance(0);
  assert.deepEqual(t.lease()?.metadata.ownerReferences, [{ apiVersion: "v1", kind: "Node", name: "n1", uid: "u1" }]);
  assert.deepEqual(t.lease()?.spec, {
    holderIdentity: "n1",
    leaseDurationSeconds: 40,
    renewTime: "2026-01-01T00:00:00.000000Z",
  });
  await t.clock.advance(30_000);
  assert.deepEqual(t.verbs(), ["get", "create", "update", "update", "update"]);
  assert.equal(t.lease()?.spec?.renewTime, "2026-01-01T00:00:30.000000Z");
});

test("restores a missing owner on renewal", async () => {
  await using t = start({ metadata: { name: "n1", uid: "u1" } });
  await t.clock.advance(0);
  t.orphan();
  t.fail(apiError(409, ""));
  await t.clock.advance(10_000);
  t.fail(undefined);
  await t.clock.advance(7_000);
  assert.deepEqual(t.verbs().slice(-2), ["get", "update"]);
  assert.deepEqual(t.lease()?.metadata.ownerReferences, [{ apiVersion: "v1", kind: "Node", name: "n1", uid: "u1" }]);
});

test("creates no lease without a Node, and retries no more often than it would renew", async () => {
  await using t = start(undefined);
  await t.clock.advance(120_000);
  assert.equal(t.verbs().includes("create"), false);
  const before = t.verbs().length;
  await t.clock.advance(60_000);
  assert.equal(t.verbs().length - before, 6);
});

test("retries within seconds if the server is unreachable, and reads the lease again after a conflict", async () => {
  await using t = start({ metadata: { name: "n1", uid: "u1" } });
  await t.clock.advance(0);
  t.fail(new CodedError("unavailable", "refused"));
  await t.clock.advance(60_000);
  t.fail(undefined);
  await t.clock.advance(7_000);
  assert.equal(t.verbs().at(-1), "update");
  t.fail(apiError(409, ""));
  await t.clock.advance(10_000);
  t.fail(undefined);
  await t.clock.advance(7_000);
  assert.deepEqual(t.verbs().slice(-2), ["get", "update"]);
});
