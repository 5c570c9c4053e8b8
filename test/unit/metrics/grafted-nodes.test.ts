import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { createGraftedNodeMetrics, type ObservedObjects } from "../../../src/metrics/grafted-nodes.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { parseExposition } from "./exposition.ts";

/** Series of the objects, as `labels value`, by name. */
async function seriesOf(objects: Partial<ObservedObjects>) {
  const all = { nodes: () => [], pools: () => [], sharing: () => undefined, ...objects };
  const families = parseExposition(await createGraftedNodeMetrics(all, fakeClock()).text());
  return (name: string) =>
    (families.get(`graftlet_${name}`)?.samples ?? []).map(
      ({ labels, value }) => `${Object.values(labels).join(" ")} ${value}`,
    );
}

const condition = (type: string, status: "True" | "False" | "Unknown", reason: string) => ({ type, status, reason });
const node = (name: string, ...conditions: readonly ReturnType<typeof condition>[]) => ({
  name,
  pool: name === "edge-1" ? "edge" : undefined,
  conditions,
});

test("shows how replicas share the objects, unless the process serves none", async () => {
  const series = await seriesOf({ sharing: () => ({ replicas: 3, unowned: 2 }) });
  assert.deepEqual([series("replicas"), series("unowned_grafted_nodes")], [[" 3"], [" 2"]]);
  assert.deepEqual((await seriesOf({}))("replicas"), []);
});

test("counts GraftedNodes by condition, status and reason", async () => {
  const nodes = () => [
    node("edge-1", condition("Accepted", "True", "Valid"), condition("Ready", "True", "NodeReady")),
    node("edge-2", condition("Accepted", "True", "Valid"), condition("Ready", "False", "LinkDown")),
  ];
  const series = await seriesOf({ nodes });
  assert.deepEqual(series("grafted_nodes"), [
    "Accepted True Valid 2",
    "Ready True NodeReady 1",
    "Ready False LinkDown 1",
  ]);
});

test("shows for each GraftedNode whether it is Ready, and the reason if it is not", async () => {
  const nodes = () => [
    node("edge-1", condition("Ready", "True", "NodeReady")),
    node("edge-2", condition("Ready", "Unknown", "NodeStatusUnknown")),
    node("edge-3"),
  ];
  const series = await seriesOf({ nodes });
  assert.deepEqual(series("grafted_node_ready"), ["edge-1 edge 1", "edge-2  0", "edge-3  0"]);
  assert.deepEqual(series("grafted_node_not_ready_reason"), ["edge-2  NodeStatusUnknown 1"]);
});

test("a reason that is not a word of limited length is shown as Other", async () => {
  const reasons = ['two words"', "x".repeat(65), "", "OK"];
  const nodes = () => reasons.map((reason, index) => node(`m-${index}`, condition("Ready", "False", reason)));
  const series = await seriesOf({ nodes });
  assert.deepEqual(series("grafted_nodes"), ["Ready False Other 3", "Ready False OK 1"]);
});

test("shows the replicas of each pool, and whether its roll-out is paused", async () => {
  const pools = () => [
    { name: "edge", wanted: 4, active: 3, ready: 2, updated: 1, isPaused: true },
    { name: "hall", wanted: 1, active: 1, ready: 1, updated: 1, isPaused: false },
  ];
  const series = await seriesOf({ pools });
  const read = (name: string) => series(`grafted_node_pool_${name}`);
  assert.deepEqual(read("spec_replicas"), ["edge 4", "hall 1"]);
  assert.deepEqual(read("status_replicas"), ["edge 3", "hall 1"]);
  assert.deepEqual(read("status_replicas_ready"), ["edge 2", "hall 1"]);
  assert.deepEqual(read("status_replicas_updated"), ["edge 1", "hall 1"]);
  assert.deepEqual(read("rollout_paused"), ["edge 1", "hall 0"]);
});

test("the docs list exactly the metrics of GraftedNodes that exist", async () => {
  const page = readFileSync(join(import.meta.dirname, "../../../docs/monitoring.md"), "utf8");
  const [section = ""] = /^## Metrics of GraftedNodes$[^]*?(?=^## )/m.exec(page) ?? [];
  const listed = [...section.matchAll(/^\| `(graftlet_\w+)`/gm)].map(([, name = ""]) => name);
  const text = await createGraftedNodeMetrics(
    { nodes: () => [], pools: () => [], sharing: () => undefined },
    fakeClock(),
  ).text();
  assert.deepEqual(
    listed,
    [...parseExposition(text).keys()].filter((name) => name.startsWith("graftlet_")),
  );
});
