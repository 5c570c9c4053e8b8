import type { DiskStats, DiskUse } from "./disk-stats.ts";
import type { ContainerSample, Measured, PodSample, Sample } from "./sample.ts";

/** A subject of /metrics/cadvisor: the node, a group of pods, a pod, a sandbox or a container. */
export interface MetricRow {
  readonly labels: RowLabels;
  readonly measured: Measured;
  /** Milliseconds since the epoch. */
  readonly startedAt?: number;
  readonly network?: PodSample["network"];
  /** File systems used by the subject. */
  readonly fileSystems: readonly DiskUse[];
  /** True for a single container: groups and pods have no processes other than those of their containers. */
  readonly isContainer: boolean;
}

export interface RowLabels {
  /** Path of the subject's cgroup. */
  readonly id: string;
  /** ID of a container or sandbox. */
  readonly name: string;
  readonly image: string;
  readonly container: string;
  readonly pod: string;
  readonly namespace: string;
}

const nobody: RowLabels = { id: "/", name: "", image: "", container: "", pod: "", namespace: "" };

/** Returns all measured subjects. Cgroups outside the pods, which cAdvisor also reports, are omitted. */
export function metricRows(sample: Sample, disk: DiskStats | undefined): readonly MetricRow[] {
  const fileSystems = disk?.fileSystems ?? [];
  const { node, network, bootedAt: startedAt } = sample;
  const groups = [...sample.groups].map(([id, measured]) => row({ ...nobody, id }, measured, { startedAt }));
  return [
    row(nobody, node, { startedAt, network, fileSystems }),
    ...groups,
    ...sample.pods.flatMap((pod) => podRows(pod, disk)),
  ];
}

function row(labels: RowLabels, measured: Measured, rest: Partial<MetricRow>): MetricRow {
  return { fileSystems: [], isContainer: false, ...rest, labels, measured };
}

function podRows(pod: PodSample, disk: DiskStats | undefined): readonly MetricRow[] {
  const { uid, name, namespace, path, measured, startedAt, sandbox, network } = pod;
  const labels: RowLabels = { ...nobody, id: path ?? "", pod: name, namespace };
  const own = measured ? [row(labels, measured, { startedAt })] : [];
  // A pod's network is its sandbox's, if measured.
  const shown = { ...(network && { network }) };
  const ofSandbox = sandbox?.measured
    ? [row(containerLabels(labels, sandbox), sandbox.measured, { startedAt, isContainer: true, ...shown })]
    : own.map((one) => ({ ...one, ...shown }));
  const containers = pod.containers.flatMap((container) => {
    const layer = disk?.pods.get(uid)?.layers.get(container.name);
    const part = { startedAt: container.startedAt, isContainer: true, fileSystems: layer ? [layer] : [] };
    return container.measured ? [row(containerLabels(labels, container), container.measured, part)] : [];
  });
  return [...(sandbox?.measured ? own : []), ...ofSandbox, ...containers];
}

function containerLabels(pod: RowLabels, { id, name, image, path }: ContainerSample): RowLabels {
  return { ...pod, id: path ?? "", name: id, image, container: name };
}
