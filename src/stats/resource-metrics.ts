import { type Family, exposition, type Point } from "./exposition.ts";
import type { ContainerSample, Measured, PodSample, Sample } from "./sample.ts";

/** /metrics/resource: CPU, memory and swap of the node, its pods and their containers, each with a timestamp. Scraped by
 *  metrics-server.
 *  @param sample undefined if nothing could be measured.
 *  @see https://kubernetes.io/docs/reference/instrumentation/node-metrics/ */
export function resourceMetrics(sample: Sample | undefined): string {
  const failed: Family = {
    name: "resource_scrape_error",
    help: "1 if there was an error while measuring, 0 otherwise.",
    type: "gauge",
    samples: [{ labels: {}, value: sample ? 0 : 1 }],
  };
  return exposition([
    ...(sample ? [...nodeFamilies(sample), ...podFamilies(sample), ...containers(sample)] : []),
    failed,
  ]);
}

/** Measurements common to a node, a pod and a container. */
interface Kind {
  readonly name: string;
  readonly help: string;
  readonly type: Family["type"];
  readonly value: (measured: Measured) => number | undefined;
}

const cpu: Kind = {
  name: "cpu_usage_seconds_total",
  help: "CPU time used, in core-seconds.",
  type: "counter",
  value: ({ cpu }) => cpu && cpu.usageNs / 1e9,
};
const memory: Kind = {
  name: "memory_working_set_bytes",
  help: "Working set, in bytes.",
  type: "gauge",
  value: ({ memory }) => memory?.workingSet,
};
const swap: Kind = {
  name: "swap_usage_bytes",
  help: "Swap used, in bytes.",
  type: "gauge",
  value: ({ memory }) => memory?.swap?.usage,
};
const swapLimit: Kind = {
  name: "swap_limit_bytes",
  help: "Swap that may be used, in bytes.",
  type: "gauge",
  value: ({ memory }) => memory?.swap?.limit,
};

type Labelled = readonly [labels: Readonly<Record<string, string>>, measured: Measured | undefined];

function family(of: string, { name, help, type, value }: Kind, at: number, all: readonly Labelled[]): Family {
  const samples = all.flatMap(([labels, measured]): readonly Point[] => {
    const number = measured && value(measured);
    return number === undefined ? [] : [{ labels, value: number, at }];
  });
  return { name: `${of}_${name}`, help, type, samples };
}

function nodeFamilies({ at, node }: Sample): readonly Family[] {
  return [cpu, memory, swap].map((kind) => family("node", kind, at, [[{}, node]]));
}

function podFamilies({ at, pods }: Sample): readonly Family[] {
  const all = pods.map((pod): Labelled => [podLabels(pod), pod.measured]);
  return [cpu, memory, swap].map((kind) => family("pod", kind, at, all));
}

function containers({ at, pods }: Sample): readonly Family[] {
  const own = pods.flatMap((pod) => pod.containers.map((container) => [labelsOf(pod, container), container] as const));
  const all = own.map(([labels, { measured }]): Labelled => [labels, measured]);
  const started: Family = {
    name: "container_start_time_seconds",
    help: "Creation time of the container, in seconds since the Unix epoch.",
    type: "gauge",
    samples: own.map(([labels, { createdAt }]) => ({ labels, value: createdAt / 1000 })),
  };
  return [started, ...[cpu, memory, swap, swapLimit].map((kind) => family("container", kind, at, all))];
}

const podLabels = ({ name, namespace }: PodSample) => ({ namespace, pod: name });
const labelsOf = (pod: PodSample, { name }: ContainerSample) => ({ container: name, ...podLabels(pod) });
