import assert from "node:assert/strict";
import { test } from "node:test";
import { implementedGates } from "../../../src/config/feature-gates.ts";
import { createNodeMetrics } from "../../../src/metrics/node-metrics.ts";
import { fakeClock } from "../../fakes/clock.ts";

const metricsOf = (gates: Readonly<Record<string, boolean>>) =>
  createNodeMetrics({
    nodeName: "node",
    kubeletVersion: "v1.36.3",
    graftletVersion: "0.1.0",
    gates: implementedGates(gates),
    clock: fakeClock(),
  });
const linesOf = async (metrics: ReturnType<typeof metricsOf>, pattern: RegExp) =>
  (await metrics.text()).split("\n").filter((line) => pattern.test(line));

test("counts CPU and memory assignments with the feature gate PodLevelResourceManagers, as a kubelet does", async () => {
  const [on, off] = [metricsOf({ PodLevelResourceManagers: true }), metricsOf({})];
  for (const { measures } of [on, off]) {
    measures.cpus.assigned("node_exclusive");
    measures.cpus.failed("pod", false);
    measures.memory.assigned("pod_shared", 1);
    measures.memory.assigned("node_exclusive", 2);
  }
  assert.deepEqual(await linesOf(off, /resource_manager/), []);
  assert.deepEqual(await linesOf(on, /^resource_manager/), [
    'resource_manager_allocations_total{resource_name="cpu",source="node"} 1',
    'resource_manager_allocations_total{resource_name="memory",source="pod"} 1',
    'resource_manager_allocations_total{resource_name="memory",source="node"} 2',
    'resource_manager_allocation_errors_total{resource_name="cpu",source="pod"} 1',
    'resource_manager_container_assignments{resource_name="cpu",assignment_type="node_exclusive"} 1',
    'resource_manager_container_assignments{resource_name="memory",assignment_type="pod_shared"} 1',
    'resource_manager_container_assignments{resource_name="memory",assignment_type="node_exclusive"} 1',
  ]);
});

test("runtime events, plugins, WebSocket requests and volume measurements have metrics with the kubelet's names", async () => {
  const metrics = metricsOf({});
  const { measures } = metrics;
  measures.pleg.eventArrived(250);
  measures.plugins.changed([], ["/registry/a.sock"]);
  measures.serving.webSocket("portForward");
  measures.drivers.statsRead("a.example.com", 500);
  const names =
    /^(kubelet_evented_pleg_.*_sum|plugin_manager|kubelet_websocket|kubelet_volume_metric.*_sum|kubelet_metrics_prov)/;
  assert.deepEqual((await linesOf(metrics, names)).toSorted(), [
    "kubelet_evented_pleg_connection_latency_seconds_sum 0.25",
    'kubelet_metrics_provider{provider="cri"} 1',
    'kubelet_volume_metric_collection_duration_seconds_sum{metric_source="a.example.com"} 0.5',
    'kubelet_websocket_streaming_requests_total{subresource="portforward"} 1',
    'plugin_manager_total_plugins{socket_path="/registry/a.sock",state="desired_state_of_world"} 1',
  ]);
});
