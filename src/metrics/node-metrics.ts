import type { ImplementedGate } from "../config/feature-gates.ts";
import type { Clock } from "../lib/clock.ts";
import type { ProbeMeasures } from "../probes/probes.ts";
import type { HealthMeasures } from "../server/ports.ts";
import { healthMetrics } from "./health.ts";
import { hookMetrics } from "./hooks.ts";
import { nodeStartMetrics } from "./node-start.ts";
import { createPodStartup } from "./pod-startup.ts";
import { podMetrics, startMetrics, statusMetrics } from "./pods.ts";
import { probeMetrics } from "./probes.ts";
import { processMetrics, processStart } from "./process.ts";
import { type Metrics, createMetrics } from "./registry.ts";
import { resizeMetrics } from "./resizes.ts";
import { reviewMetrics, tokenCacheMetrics } from "./reviews.ts";
import { requestMetrics, servingMetrics } from "./traffic.ts";
import {
  certificateMetrics,
  cgroupMetrics,
  evictionMetrics,
  gateMetrics,
  housekeepingMetrics,
  imageRemovalMetrics,
  shutdownMetrics,
} from "./maintenance.ts";
import { type NodeGauges, viewMetrics } from "./node-gauges.ts";
import { assignmentMetrics, cpuMetrics, memoryMetrics } from "./assignments.ts";
import { alignmentCounters, topologyMetrics } from "./topology.ts";
import { draMetrics } from "./dra.ts";
import { deviceMetrics, podResourcesMetrics, podsApiMetrics } from "./devices.ts";
import { driverMetrics, plegMetrics, pluginMetrics, pullMetrics, runtimeMetrics, volumeMetrics } from "./operations.ts";

/** Recording functions of the stages, by set. A call only updates a metric in memory, and never waits. */
export type Measures = ReturnType<typeof createMeasures> & {
  readonly probes: ProbeMeasures;
  readonly health: HealthMeasures;
};

export type NodeMetrics = ReturnType<typeof createNodeMetrics>;

export interface NodeMetricsDeps {
  readonly nodeName: string;
  /** Kubernetes version of this kubelet, such as `v1.36.3`. */
  readonly kubeletVersion: string;
  readonly graftletVersion: string;
  readonly gates: readonly ImplementedGate[];
  /** SHA-256 of the configuration of credential provider plugins; undefined if there is none. */
  readonly credentialProviders?: string | undefined;
  readonly clock: Clock;
}

/** The metrics of one node, with the kubelet's names where they exist.
 *  @see https://kubernetes.io/docs/reference/instrumentation/metrics/ */
export function createNodeMetrics(deps: NodeMetricsDeps) {
  const { clock } = deps;
  const metrics = createMetrics();
  const ofProbes = createMetrics();
  const ofHealth = createMetrics();
  let view: NodeGauges | undefined;
  nameMetrics(metrics, deps);
  gateMetrics(metrics, deps.gates);
  viewMetrics(metrics, () => view, clock);
  const health = healthMetrics(ofHealth);
  const measures = {
    ...createMeasures(metrics, deps, () => view),
    probes: probeMetrics(ofProbes),
    health,
  };
  processMetrics(metrics, clock);
  for (const each of [ofProbes, ofHealth]) processStart(each, clock);
  return {
    /** Recording functions for the other components. */
    measures,
    /** Sets the view of the node from which gauges are read. */
    show: (now: NodeGauges): void => void (view = now),
    /** Contents of /metrics, /metrics/probes and /metrics/slis, in Prometheus' exposition format. */
    text: metrics.text,
    probes: ofProbes.text,
    slis: ofHealth.text,
    /** Empties /metrics/slis. */
    resetSlis: health.reset,
  };
}

/** Creates the metrics that stages record, in one set per stage. The interface of a set is declared next to the code that calls it.
 *  @param view undefined until the node runs. */
function createMeasures(
  metrics: Metrics,
  { gates, clock }: Pick<NodeMetricsDeps, "gates" | "clock">,
  view: () => NodeGauges | undefined,
) {
  const startup = createPodStartup(clock);
  const alignment = alignmentCounters(metrics);
  const isOn = (gate: string) => gates.some(({ name, enabled }) => enabled && name === gate);
  const assignments = assignmentMetrics(metrics, isOn("PodLevelResourceManagers"));
  return {
    ...podMetrics(metrics, startup),
    starts: startMetrics(metrics),
    statuses: statusMetrics(metrics, startup),
    runtime: runtimeMetrics(metrics),
    pleg: plegMetrics(metrics, clock),
    hooks: hookMetrics(metrics),
    pulls: pullMetrics(metrics, startup),
    devices: deviceMetrics(metrics),
    topology: topologyMetrics(metrics, alignment),
    cpus: cpuMetrics(metrics, alignment, assignments.cpu, view),
    memory: memoryMetrics(metrics, assignments.memory),
    dra: draMetrics(metrics),
    podResources: podResourcesMetrics(metrics),
    podsApi: podsApiMetrics(metrics),
    volumes: volumeMetrics(metrics),
    drivers: driverMetrics(metrics),
    evictions: evictionMetrics(metrics),
    imageRemovals: imageRemovalMetrics(metrics),
    cgroups: cgroupMetrics(metrics),
    ...housekeepingMetrics(metrics),
    shutdowns: shutdownMetrics(metrics),
    resizes: resizeMetrics(metrics, view),
    certificates: certificateMetrics(metrics),
    requests: requestMetrics(metrics),
    serving: servingMetrics(metrics),
    reviews: reviewMetrics(metrics),
    tokenCache: tokenCacheMetrics(metrics),
    nodeStart: nodeStartMetrics(metrics, clock),
    plugins: pluginMetrics(metrics),
  };
}

/** Creates the metrics whose labels are the node's name and versions. */
function nameMetrics(metrics: Metrics, deps: NodeMetricsDeps): void {
  const { nodeName, kubeletVersion, graftletVersion, credentialProviders: hash } = deps;
  metrics.gauge("kubelet_node_name", "The node's name, as a label; always 1.", {
    labels: ["node"],
    values: () => [[{ node: nodeName }, 1]],
  });
  const [, major = "", minor = ""] = /^v(\d+)\.(\d+)/.exec(kubeletVersion) ?? [];
  metrics.gauge("kubernetes_build_info", "Kubernetes version of this kubelet, as labels; always 1.", {
    labels: ["major", "minor", "git_version", "platform"],
    values: () => [
      [{ major, minor, git_version: kubeletVersion, platform: `${process.platform}/${goArchitecture()}` }, 1],
    ],
  });
  metrics.gauge("kubelet_metrics_provider", "Source of the container usage data, as a label; always 1.", {
    labels: ["provider"],
    values: () => [[{ provider: "cri" }, 1]],
  });
  metrics.gauge("graftlet_build_info", "Version of graftlet, as labels; always 1.", {
    labels: ["version", "node_version"],
    values: () => [[{ version: graftletVersion, node_version: process.version }, 1]],
  });
  if (hash !== undefined)
    metrics.gauge(
      "kubelet_credential_provider_config_info",
      "Hash of the credential provider plugin configuration, as a label; always 1.",
      { labels: ["hash"], values: () => [[{ hash }, 1]] },
    );
}

function goArchitecture(): string {
  return process.arch === "x64" ? "amd64" : process.arch;
}
