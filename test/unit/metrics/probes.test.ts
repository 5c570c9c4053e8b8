import assert from "node:assert/strict";
import { test } from "node:test";
import { probeMetrics } from "../../../src/metrics/probes.ts";
import { createMetrics } from "../../../src/metrics/registry.ts";
import { aContainer, aPod } from "../../fakes/pods.ts";
import { parseExposition } from "./exposition.ts";

test("each probe has one series per result; they are removed with the pod", async () => {
  const metrics = createMetrics();
  const probes = probeMetrics(metrics);
  const probed = aPod({ containers: [aContainer("c")] }, { uid: "p", name: "p" });
  probes.probed(probed, "c", "readiness", "Success", 20);
  probes.probed(probed, "c", "liveness", "Failure", 30);
  const samples = async (name: string) => parseExposition(await metrics.text()).get(name)?.samples ?? [];
  assert.deepEqual(
    (await samples("prober_probe_total")).map(({ labels, value }) => [labels, value]),
    [
      ["Readiness", "successful"],
      ["Liveness", "failed"],
    ].map(([type, result]) => [
      { pod: "p", namespace: "default", probe_type: type, container: "c", pod_uid: "p", result },
      1,
    ]),
  );
  const durations = await samples("prober_probe_duration_seconds");
  assert.ok(durations.every(({ labels }) => labels["probe_type"] === "Readiness"));
  probes.forget(probed);
  assert.deepEqual([await samples("prober_probe_total"), await samples("prober_probe_duration_seconds")], [[], []]);
});
