import assert from "node:assert/strict";
import { test } from "node:test";
import { healthMetrics } from "../../../src/metrics/health.ts";
import { createMetrics } from "../../../src/metrics/registry.ts";
import { parseExposition } from "./exposition.ts";

test("health checks have a last result and counters until the node is removed", async () => {
  const metrics = createMetrics();
  const health = healthMetrics(metrics);
  const samples = async () => {
    const families = parseExposition(await metrics.text());
    return ["kubernetes_healthcheck", "kubernetes_healthchecks_total"].map((name) =>
      (families.get(name)?.samples ?? []).map(({ labels, value }) => [labels, value]),
    );
  };
  for (const isHealthy of [true, true, false]) health.checked("syncloop", isHealthy);
  const labels = { name: "syncloop", type: "healthz" };
  const counted = [
    [{ ...labels, status: "success" }, 2],
    [{ ...labels, status: "error" }, 1],
  ];
  assert.deepEqual(await samples(), [[[labels, 0]], counted]);
  health.reset();
  assert.deepEqual(await samples(), [[], []]);
  health.checked("syncloop", true);
  assert.deepEqual(await samples(), [[[labels, 1]], [[{ ...labels, status: "success" }, 1]]]);
});
