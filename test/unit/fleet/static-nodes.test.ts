import assert from "node:assert/strict";
import { test, type TestContext } from "node:test";
import type { GraftedNode } from "../../../src/fleet/grafted-node.ts";
import { createStaticNodes } from "../../../src/fleet/static-nodes.ts";
import { CodedError } from "../../../src/lib/errors.ts";
import { silentLog } from "../../../src/lib/log.ts";
import { createReportedNode } from "../../../src/report/reported-node.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { type Call, fakeClient, settle, type WatchFeed, watchFeed } from "../api/fake-client.ts";

const path = "/apis/graftlet.dev/v1alpha1/namespaces/graftlet/graftednodes";
const owner = { apiVersion: "v1", kind: "ServiceAccount", name: "edge-graftlet", uid: "account" };

/** An object as another process of the release left it. */
function leftover(name: string, managers: readonly string[]): GraftedNode {
  const managedFields = managers.map((manager) => ({ manager, fieldsV1: { "f:spec": {} } }));
  const labels = { "graftlet.dev/static": "edge" };
  return {
    metadata: { name, namespace: "graftlet", uid: name, resourceVersion: "7", labels, managedFields },
    spec: { static: { release: "edge", provider: "ssh" }, ssh: { host: "machine" } },
  };
}

/** Starts the service with two nodes, edge-1 over SSH and local-1, until the test ends. */
async function start(t: TestContext, existing: readonly GraftedNode[] = []) {
  const clock = fakeClock();
  const objects = new Map(existing.map((object) => [object.metadata.name, object]));
  let feed: WatchFeed | undefined;
  let isForbidden = false;
  const nameIn = (call: Call) => call.path.slice(path.length + 1).replace("/status", "");
  const client = fakeClient((call, signal) => {
    if (call.verb === "watch") return (feed = watchFeed(signal));
    if (call.verb === "list")
      return { metadata: { resourceVersion: "1" }, items: structuredClone([...objects.values()]) };
    const name = nameIn(call);
    if (call.verb === "get") return objects.get(name);
    if (call.verb === "delete") return void objects.delete(name);
    if (isForbidden) throw new CodedError("permission_denied", "forbidden");
    const body = call.body as GraftedNode;
    const object = { ...body, metadata: { ...body.metadata, namespace: "graftlet", uid: name } };
    if (!call.path.endsWith("/status")) objects.set(name, object);
    return object;
  });
  const report = createReportedNode({ name: "edge-1", provider: "ssh" });
  const local = createReportedNode({ name: "local-1", provider: "cri" });
  const ssh = { host: "machine", port: 2222, user: "root", privateKeyFile: "/etc/key", reverse: { port: 1 } };
  const nodes = [
    { config: { nodeName: "edge-1", provider: "ssh", providerConfig: ssh }, report },
    { config: { nodeName: "local-1", provider: "cri", providerConfig: { socket: "/run/c.sock" } }, report: local },
  ];
  const stop = new AbortController();
  const log = silentLog();
  const service = createStaticNodes({ client, namespace: "graftlet", release: "edge", nodes, owner, clock, log });
  const ended = service.run(stop.signal);
  t.after(async () => {
    stop.abort();
    await ended;
  });
  await settle();
  return {
    clock,
    objects,
    report,
    /** Reason of each node's condition Ready. */
    reasons: () =>
      service.nodes().map(({ name, conditions }) => [name, conditions.find(({ type }) => type === "Ready")?.reason]),
    forbid: (is: boolean) => (isForbidden = is),
    /** Calls of a verb about an object, or its status. */
    calls: (verb: Call["verb"], of: string) =>
      client.calls.filter((call) => call.verb === verb && call.path === `${path}/${of}`),
    send: (type: "ADDED" | "MODIFIED" | "DELETED", object: GraftedNode) => feed?.send(type, object),
    async pass(ms: number) {
      await clock.advance(ms);
      await settle();
    },
  };
}

test("shows each node of the configuration as an object without a reference to a login", async (t) => {
  const { objects } = await start(t);
  const labels = { "graftlet.dev/static": "edge" };
  const shown = ({ metadata, spec }: GraftedNode) => [metadata.labels, metadata.ownerReferences, spec];
  assert.deepEqual(
    [...objects.values()].map(shown),
    [
      {
        static: { release: "edge", provider: "ssh" },
        ssh: { host: "machine", port: 2222, user: "root", reverse: {} },
      },
      { static: { release: "edge", provider: "cri" }, ssh: {} },
    ].map((spec) => [labels, [owner], spec]),
  );
});

test("writes the node's conditions to the object's status when they change", async (t) => {
  const { report, calls, pass } = await start(t);
  await pass(2_000);
  const conditions = () => {
    const body = calls("patch", "edge-1/status").at(-1)?.body as GraftedNode | undefined;
    return body?.status?.conditions?.map(({ type, reason }) => `${type} ${reason}`);
  };
  assert.equal(conditions()?.[0], "Accepted Static");
  assert.equal(conditions()?.[1], "Identified CertificatePending");
  report.onProgress({ isIdentified: true });
  await pass(2_000);
  assert.equal(conditions()?.[1], "Identified CertificateIssued");
});

test("observes the conditions of each node, even while its object cannot be written", async (t) => {
  const { forbid, objects, pass, reasons, report, send } = await start(t);
  report.onProgress({ isIdentified: true, trouble: { reason: "LoginRefused", message: "no" } });
  const wanted = [
    ["edge-1", "LoginRefused"],
    ["local-1", "CertificatePending"],
  ];
  assert.deepEqual(reasons(), wanted);
  forbid(true);
  const object = objects.get("edge-1");
  assert.ok(object);
  send("DELETED", object);
  await pass(2_000);
  assert.deepEqual(reasons(), wanted);
});

test("recreates a deleted object, at most once a second", async (t) => {
  const { objects, calls, send, pass } = await start(t);
  const object = objects.get("edge-1");
  assert.ok(object);
  send("DELETED", object);
  await settle();
  assert.equal(calls("patch", "edge-1").length, 1);
  await pass(1_000);
  assert.equal(calls("patch", "edge-1").length, 2);
  assert.equal(calls("patch", "local-1").length, 1);
});

test("retries every ten seconds while an object cannot be written", async (t) => {
  const { objects, calls, send, forbid, pass } = await start(t);
  const object = objects.get("edge-1");
  assert.ok(object);
  forbid(true);
  send("DELETED", object);
  await settle();
  await pass(1_000);
  assert.equal(calls("patch", "edge-1").length, 2);
  await pass(9_000);
  assert.equal(calls("patch", "edge-1").length, 2);
  forbid(false);
  await pass(1_000);
  assert.equal(calls("patch", "edge-1").length, 3);
});

test("deletes the object of a node that is no longer configured", async (t) => {
  const { objects, calls } = await start(t, [leftover("edge-2", ["graftlet-static"])]);
  assert.equal(objects.has("edge-2"), false);
  assert.deepEqual(calls("delete", "edge-2")[0]?.body, { preconditions: { uid: "edge-2", resourceVersion: "7" } });
});

test("once its node is no longer configured, leaves an object that a user has modified to the fleet", async (t) => {
  const { calls } = await start(t, [leftover("edge-2", ["graftlet-static", "kubectl-client-side-apply"])]);
  assert.equal(calls("delete", "edge-2").length, 0);
  assert.deepEqual(calls("patch", "edge-2")[0]?.body, {
    metadata: { uid: "edge-2", resourceVersion: "7", labels: { "graftlet.dev/static": null }, ownerReferences: [] },
    spec: { static: null },
  });
});

test("removes the finalizer from the deleted object of a configured node that the fleet served before", async (t) => {
  const { objects, calls, send } = await start(t);
  const object = objects.get("edge-1");
  assert.ok(object);
  const metadata = {
    ...object.metadata,
    deletionTimestamp: "2026-01-01T00:00:00Z",
    finalizers: ["graftlet.dev/leave"],
  };
  const deleted = { ...object, metadata };
  objects.set("edge-1", deleted);
  send("MODIFIED", deleted);
  await settle();
  const last = calls("patch", "edge-1").at(-1)?.body as GraftedNode | undefined;
  assert.deepEqual(last?.metadata.finalizers, []);
});
