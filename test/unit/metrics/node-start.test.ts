import assert from "node:assert/strict";
import { test } from "node:test";
import { nodeStartMetrics } from "../../../src/metrics/node-start.ts";
import { createMetrics } from "../../../src/metrics/registry.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { parseExposition } from "./exposition.ts";

test("records the phases of a new node's start, but not of an existing node's", async () => {
  const clock = fakeClock();
  const metrics = createMetrics();
  const measures = nodeStartMetrics(metrics, clock);
  const parts = ["pre_kubelet_", "pre_registration_", "registration_", "post_registration_", ""];
  const all = async () => {
    const families = parseExposition(await metrics.text());
    return parts.map((part) => families.get(`kubelet_node_startup_${part}duration_seconds`)?.samples[0]?.value);
  };
  measures.booted(clock.now() - 60_000);
  await clock.advance(2_000);
  measures.registering();
  measures.ready();
  assert.deepEqual(await all(), [0, 0, 0, 0, 0]);
  await clock.advance(3_000);
  measures.registered();
  assert.deepEqual(await all(), [60, 2, 3, 0, 0]);
  await clock.advance(4_000);
  measures.ready();
  await clock.advance(5_000);
  for (const again of ["registering", "registered", "ready"] as const) measures[again]();
  assert.deepEqual(await all(), [60, 2, 3, 4, 69]);
});
