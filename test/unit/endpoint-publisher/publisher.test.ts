import assert from "node:assert/strict";
import { once } from "node:events";
import { type AddressInfo, connect, createServer } from "node:net";
import { text } from "node:stream/consumers";
import { test } from "node:test";
import { CodedError } from "../../../src/lib/errors.ts";
import { silentLog } from "../../../src/lib/log.ts";
import { createTunnelLimits } from "../../../src/service-tunnel/tunnel-limits.ts";
import { createServicePublisher, type PublisherDeps } from "../../../src/endpoint-publisher/publisher.ts";
import { buildSlice } from "../../../src/endpoint-publisher/slices.ts";
import { serviceEndpoints } from "../../../src/endpoint-publisher/service-endpoints.ts";
import type { EndpointSlice, Pod, Service, WrittenSlice } from "../../../src/objects.ts";
import type { RuntimePod } from "../../../src/pipeline.ts";
import { type ApiPod, apiPod } from "../../../src/roles.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { aPod, aSandbox, observe } from "../../fakes/pods.ts";
import { aColumn } from "../../fakes/state.ts";

const owner = { apiVersion: "rbac.authorization.k8s.io/v1", kind: "ClusterRole", name: "edge", uid: "o" };
const own = "127.0.0.1";
const address = "10.88.0.5";

const pod = (uid: string, podIP = address): Pod => ({
  ...aPod({}, { uid, name: uid, labels: { app: "shop" } }),
  status: { phase: "Running", podIP, conditions: [{ type: "Ready", status: "True" }] },
});
const shop: Service = {
  metadata: { name: "shop", namespace: "default", uid: "s" },
  spec: { clusterIP: "10.96.0.9", clusterIPs: ["10.96.0.9"], selector: { app: "shop" }, ports: [{ port: 80 }] },
};

/** A publisher with a cluster of slices, and a pod's server that reports how it was dialled. */
async function setUp({ left = [] as readonly EndpointSlice[] } = {}) {
  const clock = fakeClock();
  const apiPods = aColumn<ApiPod>();
  const podCache = aColumn<RuntimePod>();
  const slices = new Map(left.map((slice) => [slice.metadata.name, slice]));
  const calls: string[] = [];
  const events: string[] = [];
  const hears = new Set<() => void>();
  let services: readonly Service[] = [shop];
  let headless: readonly Service[] = [];
  let refusals = 0;
  let forbidden = "";
  const tell = () => hears.forEach((hear) => hear());
  const onChange = (hear: () => void) => {
    hears.add(hear);
    return () => void hears.delete(hear);
  };
  const store: PublisherDeps["slices"] = {
    ready: async () => {},
    list: () => [...slices.values()],
    onChange,
    async put(slice: WrittenSlice) {
      if (slice.metadata.namespace === forbidden) throw new CodedError("permission_denied", "never");
      if (refusals > 0) {
        refusals -= 1;
        throw new CodedError("permission_denied", "not yet");
      }
      calls.push(`put ${slice.metadata.name}`);
      slices.set(slice.metadata.name, { ...slice, metadata: { ...slice.metadata, uid: "u" } });
    },
    async delete(slice) {
      calls.push(`drop ${slice.metadata.name}`);
      slices.delete(slice.metadata.name);
    },
  };
  const server = createServer({ allowHalfOpen: true }, (socket) => void socket.end("hello")).listen(0, own);
  await once(server, "listening");
  const dialled: string[] = [];
  const publisher = createServicePublisher({
    host: {
      async dial(to) {
        assert.ok("host" in to);
        dialled.push(`${to.host}:${to.port}`);
        return connect((server.address() as AddressInfo).port, own);
      },
    },
    nodeName: "edge-1",
    own,
    tunnelLimits: createTunnelLimits(),
    podNode: "node-1",
    owner: async () => owner,
    mayPublish: ({ metadata }) => metadata.namespace !== "closed",
    services: { list: () => services, onChange },
    headless: { list: () => headless, onChange },
    slices: store,
    report: (reason, message) => void events.push(`${reason} ${message}`),
    apiPods,
    podCache,
    clock,
    log: silentLog(),
  });
  const over = new AbortController();
  const running = publisher.run(over.signal);
  return {
    clock,
    slices,
    calls,
    events,
    dialled,
    show(uid: string, one = pod(uid), ip = address) {
      apiPods.set(uid, apiPod(one));
      podCache.set(uid, observe([aSandbox({ network: { ip, additionalIps: [] } })], []));
    },
    hide: (uid: string) => apiPods.delete(uid),
    offer(given: readonly Service[]) {
      services = given;
      tell();
    },
    offerHeadless(given: readonly Service[]) {
      headless = given;
      tell();
    },
    forbid: (namespace: string) => void (forbidden = namespace),
    refuse: (times: number) => void (refusals = times),
    tell,
    only() {
      const [slice, ...more] = slices.values();
      assert.ok(slice && more.length === 0);
      return slice;
    },
    async settle() {
      for (let round = 0; round < 8; round += 1) {
        await clock.advance(300);
        await new Promise((resolve) => setTimeout(resolve, 5));
      }
    },
    async stop() {
      over.abort();
      await running;
      server.close();
    },
  };
}

const portOf = ({ ports }: EndpointSlice) => ports?.[0]?.port ?? 0;
const ask = (port: number) => text(connect({ port, host: own }));

test("publishes a port that forwards to the pod, and deletes the slice when the pod ends or graftlet stops", async () => {
  const t = await setUp();
  t.show("a");
  await t.settle();
  const slice = t.only();
  assert.deepEqual(slice.endpoints?.[0]?.addresses, [own]);
  assert.equal(slice.endpoints?.[0]?.nodeName, "node-1");
  assert.deepEqual(slice.metadata.ownerReferences, [owner]);
  assert.equal(await ask(portOf(slice)), "hello");
  assert.deepEqual(t.dialled, [`${address}:80`]);
  t.hide("a");
  await t.settle();
  assert.equal(t.slices.size, 0);
  await assert.rejects(ask(portOf(slice)), { code: "ECONNREFUSED" });
  t.show("b");
  await t.settle();
  assert.notEqual(portOf(t.only()), portOf(slice), "a port that was just another pod's");
  await t.stop();
  assert.equal(t.slices.size, 0);
});

test("writes slices only when something changes, and restores slices that others changed or deleted", async () => {
  const t = await setUp();
  t.show("a");
  await t.settle();
  const { name } = t.only().metadata;
  t.tell();
  await t.settle();
  assert.deepEqual(t.calls, [`put ${name}`]);
  t.slices.set(name, { ...t.only(), endpoints: [{ addresses: ["192.0.2.1"] }] });
  t.tell();
  await t.settle();
  assert.deepEqual(t.only().endpoints?.[0]?.addresses, [own]);
  t.slices.clear();
  t.tell();
  await t.settle();
  assert.equal(t.only().metadata.name, name);
  await t.stop();
});

test("leaves a slice alone that the replica which serves the node now has replaced", async () => {
  const t = await setUp();
  t.show("a");
  await t.settle();
  const { name } = t.only().metadata;
  t.slices.set(name, { ...t.only(), endpoints: [{ addresses: ["192.0.2.1"] }] });
  await t.stop();
  assert.deepEqual(t.only().endpoints?.[0]?.addresses, ["192.0.2.1"]);
});

test("does not forward to an address that the runtime no longer reports", async () => {
  const t = await setUp();
  t.show("a");
  await t.settle();
  const port = portOf(t.only());
  t.show("a", pod("a"), "10.88.0.6");
  await t.settle();
  await assert.rejects(ask(port), { code: "ECONNRESET" });
  assert.deepEqual(t.dialled, []);
  await t.stop();
});

test("deletes stale slices of the node, and does not use their ports until they are deleted", async () => {
  const [endpoint] = serviceEndpoints([shop], [pod("gone")]);
  assert.ok(endpoint);
  const old = buildSlice(endpoint, { address: own, podNode: "node-1", nodeName: "edge-1", owner, ports: [20_000] });
  const other = buildSlice(endpoint, { address: own, podNode: "node-1", nodeName: "edge-2", owner, ports: [20_001] });
  const made = (slice: WrittenSlice, name: string) => ({ ...slice, metadata: { ...slice.metadata, name, uid: name } });
  const t = await setUp({ left: [made(old, "old"), made(other, "other")] });
  t.show("a");
  await t.settle();
  assert.deepEqual(t.slices.has("old"), false);
  assert.ok(t.slices.has("other"));
  const mine = [...t.slices.values()].find(({ metadata }) => metadata.name !== "other");
  assert.ok(mine && ![20_000, 20_001].includes(portOf(mine)));
  await t.stop();
  assert.deepEqual([...t.slices.keys()], ["other"]);
});

test("retries a slice that the API server refuses, and deletes the slices of a deleted Service", async () => {
  const t = await setUp();
  t.refuse(2);
  t.show("a");
  await t.clock.advance(10_000);
  await t.settle();
  assert.equal(t.slices.size, 1);
  const port = portOf(t.only());
  t.offer([]);
  await t.settle();
  assert.equal(t.slices.size, 0);
  assert.equal(await ask(port), "hello", "nodes of the cluster may not have heard of it yet");
  await t.clock.advance(10_000);
  await assert.rejects(ask(port), { code: "ECONNREFUSED" });
  await t.stop();
});

test("a Service whose slices are refused does not block others; ineligible Services are skipped", async () => {
  const of = (namespace: string): Service => ({ ...shop, metadata: { name: "shop", namespace, uid: namespace } });
  const t = await setUp();
  t.forbid("first");
  t.offer(["first", "second", "closed"].map(of));
  for (const namespace of ["first", "second", "closed"]) {
    const one = pod(namespace);
    t.show(namespace, { ...one, metadata: { ...one.metadata, namespace } });
  }
  await t.settle();
  assert.equal(t.only().metadata.namespace, "second");
  await t.stop();
});

test("emits one event for a Service that cannot be forwarded, and another one if the problem recurs", async () => {
  const t = await setUp();
  const local: Service = { ...shop, spec: { ...shop.spec, internalTrafficPolicy: "Local" } };
  t.offer([local]);
  t.show("a");
  await t.settle();
  t.tell();
  await t.settle();
  assert.deepEqual(
    t.events.map((event) => event.split(":")[0]),
    ["ServicesNotForwarded the cluster cannot reach pods of this node through default/shop"],
  );
  t.offer([shop]);
  await t.settle();
  assert.equal(t.events.length, 1);
  t.offer([local]);
  await t.settle();
  assert.equal(t.events.length, 2);
  await t.stop();
});

test("emits an event for a headless Service that selects a pod on the node", async () => {
  const t = await setUp();
  t.show("a");
  t.offerHeadless([
    {
      ...shop,
      metadata: { ...shop.metadata, name: "db" },
      spec: { ...shop.spec, clusterIP: "None", clusterIPs: ["None"] },
    },
  ]);
  await t.settle();
  assert.match(t.events.join(), /^ServicesNotForwarded .* through default\/db: it is headless/);
  await t.stop();
});

test("publishes pods even if slices of others claim all ports at graftlet's address", async () => {
  const [endpoint] = serviceEndpoints([shop], [pod("gone")]);
  assert.ok(endpoint);
  const ports = Array.from({ length: 10_000 }, (_, index) => ({ port: 20_000 + index }));
  const place = { address: own, podNode: "node-1", nodeName: "edge-2", owner, ports: [] };
  const slice = buildSlice(endpoint, place);
  const t = await setUp({ left: [{ ...slice, metadata: { ...slice.metadata, name: "other", uid: "other" }, ports }] });
  t.show("a");
  await t.settle();
  const mine = [...t.slices.values()].find(({ metadata }) => metadata.name !== "other");
  assert.ok(mine && portOf(mine) >= 20_000);
  assert.equal(await ask(portOf(mine)), "hello");
  await t.stop();
});
