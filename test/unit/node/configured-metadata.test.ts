import assert from "node:assert/strict";
import { test } from "node:test";
import { apiError } from "../../../src/api/api-error.ts";
import {
  type ConfiguredMetadata,
  metadataPatch,
  configuredRecord,
  taintsPatch,
} from "../../../src/node/configured-metadata.ts";
import { createReconcile } from "../../../src/node/reconcile.ts";
import type { Node, Taint } from "../../../src/objects.ts";
import { createTrigger } from "../../../src/lib/trigger.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { bodyOf, type Call, fakeClient, settle, silent } from "../api/fake-client.ts";

const nothing: ConfiguredMetadata = { labels: {}, annotations: {}, taints: [] };
const press: Taint = { key: "dedicated", value: "press", effect: "NoExecute" };
const cordoned: Taint = {
  key: "node.kubernetes.io/unschedulable",
  effect: "NoSchedule",
  timeAdded: "2026-01-01T00:00:00Z",
};
const keys = "graftlet.dev/configured";
const taintKeys = "graftlet.dev/configured-taints";

interface Shown {
  readonly labels?: Record<string, string>;
  readonly annotations?: Record<string, string>;
  readonly taints?: Taint[];
}

function shown({ labels, annotations, taints }: Shown): Node {
  return {
    metadata: { name: "n", resourceVersion: "7", ...(labels && { labels }), ...(annotations && { annotations }) },
    ...(taints && { spec: { taints } }),
  };
}

/** The configuration as in the Node's metadata, without anything else. */
function settled(configured: ConfiguredMetadata): Node {
  const { labels, annotations, taints } = configured;
  return shown({
    labels: { ...labels },
    annotations: { ...annotations, ...configuredRecord(configured) },
    taints: [...taints],
  });
}

const full: ConfiguredMetadata = {
  labels: { site: "north" },
  annotations: { "example.org/rack": "7 b" },
  taints: [press],
};

test("makes no patch for a Node that matches its configuration", () => {
  for (const configured of [full, nothing, { ...nothing, labels: { a: "" } }]) {
    assert.equal(metadataPatch(settled(configured), configured), undefined);
    assert.equal(taintsPatch(settled(configured), configured), undefined);
  }
  const others = shown({ labels: { mine: "1" }, annotations: { mine: "2" }, taints: [cordoned] });
  assert.equal(metadataPatch(others, nothing), undefined);
  assert.equal(taintsPatch(others, nothing), undefined);
});

test("restores missing and changed keys, and leaves all other keys alone", () => {
  const node = shown({ labels: { site: "south", mine: "1" }, annotations: { mine: "2", ...configuredRecord(full) } });
  assert.deepEqual(metadataPatch(node, full), {
    metadata: { labels: { site: "north" }, annotations: { "example.org/rack": "7 b" } },
  });
  assert.deepEqual(metadataPatch(shown({ labels: { site: "north" } }), { ...nothing, labels: full.labels }), {
    metadata: { annotations: { [keys]: '{"labels":["site"],"annotations":[]}' } },
  });
});

test("removes keys that are no longer configured, and keeps those that were never recorded", () => {
  const left: ConfiguredMetadata = { ...full, labels: {} };
  const node = settled(full);
  assert.deepEqual(metadataPatch(node, left), {
    metadata: { labels: { site: null }, annotations: { [keys]: '{"labels":[],"annotations":["example.org/rack"]}' } },
  });
  assert.deepEqual(metadataPatch(node, nothing), {
    metadata: { labels: { site: null }, annotations: { "example.org/rack": null, [keys]: null } },
  });
  const byHand = shown({ labels: { site: "north" }, annotations: { [taintKeys]: "dedicated:NoExecute" } });
  assert.equal(metadataPatch(byHand, nothing), undefined);
});

test("a corrupt record removes nothing and is rewritten", () => {
  for (const text of ["{", "[]", "null", '{"labels":"site"}', '{"labels":[7]}'])
    assert.deepEqual(metadataPatch(shown({ labels: { 7: "x", site: "x" }, annotations: { [keys]: text } }), nothing), {
      metadata: { annotations: { [keys]: null } },
    });
});

test("keeps other components' taints with their position and time, and patches only this version of the Node", () => {
  const other: Taint = { key: "dedicated", value: "other", effect: "NoSchedule" };
  assert.deepEqual(taintsPatch(shown({ taints: [{ ...press, value: "changed" }, cordoned, other] }), full), {
    metadata: { resourceVersion: "7", annotations: { [taintKeys]: "dedicated:NoExecute" } },
    spec: { taints: [cordoned, other, press] },
  });
  const annotations = { [taintKeys]: "dedicated:NoExecute" };
  assert.deepEqual(taintsPatch(shown({ annotations }), full), {
    metadata: { resourceVersion: "7" },
    spec: { taints: [press] },
  });
  assert.deepEqual(taintsPatch(shown({ annotations, taints: [press, other] }), nothing), {
    metadata: { resourceVersion: "7", annotations: { [taintKeys]: null } },
    spec: { taints: [other] },
  });
  assert.equal(
    taintsPatch(shown({ annotations, taints: [{ ...press, timeAdded: "2026-01-01T00:00:00Z" }] }), full),
    undefined,
  );
});

test("replaces the value of a recorded taint", () => {
  const taints = [{ ...press, value: "radio" }];
  assert.deepEqual(taintsPatch(settled(full), { ...full, taints }), {
    metadata: { resourceVersion: "7" },
    spec: { taints },
  });
});

/** Runs the service for a Node. */
async function run(answer: (call: Call) => unknown) {
  const clock = fakeClock();
  const client = fakeClient(answer);
  const tainter = fakeClient(answer);
  const warnings: string[] = [];
  const log = { ...silent, warn: (fields: object) => void warnings.push((fields as { what: string }).what) };
  let node: Node | undefined;
  let configured = full;
  const changed = createTrigger();
  const ended = new AbortController();
  const nodes = { node: () => node };
  const service = createReconcile({
    client,
    tainter,
    nodes,
    nodeName: "n",
    configured: { current: () => configured, changed: changed.fired },
    everyMs: 10_000,
    clock,
    log,
  });
  const running = service.run(ended.signal);
  await settle();
  return {
    client,
    tainter,
    warnings,
    show: (given: Node | undefined) => void (node = given),
    configure(given: typeof full) {
      configured = given;
      changed.fire();
    },
    async pass(ms: number) {
      await clock.advance(ms);
      await settle();
    },
    async [Symbol.asyncDispose]() {
      ended.abort();
      await running;
    },
  };
}

test("writes a changed configuration at once", async () => {
  await using t = await run(() => ({}));
  t.show(settled(full));
  await t.pass(1_000);
  assert.deepEqual(t.client.calls, []);
  t.configure({ ...full, labels: { ...full.labels, site: "south" } });
  await t.pass(0);
  assert.equal(t.client.calls.length, 1);
});

test("checks the Node as soon as it is known, and writes taints with the client permitted to do so", async () => {
  await using t = await run(() => ({}));
  assert.deepEqual([t.client.calls, t.tainter.calls], [[], []]);
  t.show(shown({}));
  await t.pass(1_000);
  assert.deepEqual([t.client.calls.length, t.tainter.calls.length], [1, 1]);
  assert.deepEqual([t.client.calls[0]?.path, t.tainter.calls[0]?.path], ["/api/v1/nodes/n", "/api/v1/nodes/n"]);
  assert.ok(!("spec" in bodyOf<object>(t.client, 0)));
  t.show(settled(full));
  await t.pass(60_000);
  assert.deepEqual([t.client.calls.length, t.tainter.calls.length], [1, 1]);
});

test("logs a refusal once and retries; ignores conflicts; labels do not wait for taints", async () => {
  let status = 403;
  await using t = await run(({ body }) => {
    if ("spec" in (body as object))
      throw apiError(status, JSON.stringify({ kind: "Status", message: "no", reason: "Forbidden" }));
    return {};
  });
  t.show(shown({}));
  await t.pass(1_000);
  await t.pass(10_000);
  assert.deepEqual(t.warnings, ["taints"]);
  assert.deepEqual([t.client.calls.length, t.tainter.calls.length], [2, 2]);
  status = 409;
  await t.pass(10_000);
  assert.deepEqual([t.warnings, t.tainter.calls.length], [["taints"], 3]);
});
