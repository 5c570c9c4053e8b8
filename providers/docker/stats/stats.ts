import type { ContainerInfo } from "dockerode";
import {
  ContainerAttributes,
  ContainerStats,
  CpuUsage,
  LinuxPodSandboxStats,
  MemoryUsage,
  PodSandboxAttributes,
  PodSandboxStats,
  type UInt64Value,
  FilesystemUsage,
} from "../../../src/gen/cri.ts";
import { CodedError, ignoreCode } from "../../../src/lib/errors.ts";
import type { Stats } from "../../../src/seams/runtime.ts";
import { criLabels } from "../container/labels.ts";
import {
  containerType,
  parseContainerName,
  sandboxIdLabel,
  sandboxType,
  parseSandboxName,
} from "../container/names.ts";
import { listOwn } from "../container/own.ts";
import type { DockerParts } from "../parts.ts";
import { type Usage, type StatsSample, parseUsage } from "./sample.ts";
import { createSemaphore } from "../../../src/lib/semaphore.ts";
import { engineInfo } from "../client/engine-info.ts";
import { createLayersDirectory } from "../client/layers-directory.ts";
import { nodeLabel } from "../../../src/pod/labels.ts";
import { createSlowMeasurement } from "../client/slow-measurement.ts";

interface StatsFilter {
  readonly id?: string;
  readonly podSandboxId?: string;
  readonly labelSelector?: Readonly<Record<string, string>>;
}

/** Resource usage. CPU and memory are omitted for containers that are not running; disk usage comes from an earlier measurement. */
export function dockerStats(parts: DockerParts): Required<Stats> {
  const writableLayers = createWritableLayers(parts);
  const listContainers = async (filter: StatsFilter | undefined, signal: AbortSignal) => {
    const containers = await matching(parts, containerType, filter, signal);
    if (containers.length === 0) return [];
    const [sample, layer] = await Promise.all([createSampler(parts, signal), writableLayers(signal)]);
    const measured = await Promise.all(containers.map((container) => measure(container, sample, layer)));
    return measured.map(({ stats }) => stats);
  };
  const listPods = async (filter: StatsFilter | undefined, signal: AbortSignal) => {
    const sandboxes = await matching(parts, sandboxType, filter, signal);
    if (sandboxes.length === 0) return [];
    const [only] = sandboxes.length === 1 ? sandboxes : [];
    const [containers, sample, layer] = await Promise.all([
      matching(parts, containerType, { ...(only && { podSandboxId: only.Id }) }, signal),
      createSampler(parts, signal),
      writableLayers(signal),
    ]);
    return Promise.all(
      sandboxes.map(async (sandbox) => {
        const own = containers.filter(({ Labels }) => Labels[sandboxIdLabel] === sandbox.Id);
        const [usage, ...measured] = await Promise.all([
          sample(sandbox),
          ...own.map((container) => measure(container, sample, layer)),
        ]);
        return podStats(sandbox, usage, measured);
      }),
    );
  };
  return {
    containerStats: async (id, signal) => exactlyOne(await listContainers({ id }, signal), id),
    listContainerStats: listContainers,
    podSandboxStats: async (id, signal) => exactlyOne(await listPods({ id }, signal), id),
    listPodSandboxStats: listPods,
  };
}

/** Lists containers or sandboxes of this node that match the filter. */
async function matching(
  parts: DockerParts,
  type: string,
  { id = "", podSandboxId, labelSelector }: StatsFilter = {},
  signal: AbortSignal,
): Promise<readonly ContainerInfo[]> {
  const labels = { ...labelSelector, ...(podSandboxId && { [sandboxIdLabel]: podSandboxId }) };
  const found = await listOwn(parts, type, { labels, id }, signal);
  return id === "" ? found : found.filter(({ Id }) => Id === id);
}

function exactlyOne<T>([stats]: readonly T[], id: string): T {
  if (stats === undefined || id === "")
    throw new CodedError("not_found", `this node has no sandbox or container with the ID ${JSON.stringify(id)}`);
  return stats;
}

async function measure(container: ContainerInfo, sample: Sampler, layer: WritableLayer): Promise<MeasuredContainer> {
  const usage = await sample(container);
  const metadata = container.Names.map(parseContainerName).find((name) => name !== undefined);
  const stats = ContainerStats.fromPartial({
    attributes: ContainerAttributes.fromPartial({ id: container.Id, metadata, ...criLabels(container.Labels) }),
    cpu: usage?.cpu,
    memory: usage?.memory,
    writableLayer: layer(container.Id),
  });
  return { stats, usage };
}

/** A container's usage in CRI's form, and further fields that CRI's container stats do not have. */
export interface MeasuredContainer {
  readonly stats: ContainerStats;
  readonly usage: Usage | undefined;
}

/** Returns a pod's usage: the sum of its sandbox and running containers, and the sandbox's network. Docker does not measure pods,
 *  so the usage of ended containers is missing. */
export function podStats(
  sandbox: ContainerInfo,
  sandboxUsage: Usage | undefined,
  containers: readonly MeasuredContainer[],
): PodSandboxStats {
  const metadata = sandbox.Names.map(parseSandboxName).find((name) => name !== undefined);
  const usages = [sandboxUsage, ...containers.map(({ usage }) => usage)].filter((usage) => usage !== undefined);
  return PodSandboxStats.fromPartial({
    attributes: PodSandboxAttributes.fromPartial({ id: sandbox.Id, metadata, ...criLabels(sandbox.Labels) }),
    linux: LinuxPodSandboxStats.fromPartial({
      ...(usages.length > 0 && sumUsage(usages)),
      network: sandboxUsage?.network,
      containers: containers.map(({ stats }) => stats),
    }),
  });
}

function sumUsage(usages: readonly Usage[]): Pick<LinuxPodSandboxStats, "cpu" | "memory" | "process"> {
  const timestamp = usages.map(({ cpu }) => cpu.timestamp).reduce((a, b) => (a > b ? a : b));
  const total = (read: (usage: Usage) => UInt64Value | undefined) => ({
    value: usages.reduce((sum, usage) => sum + (read(usage)?.value ?? 0n), 0n),
  });
  return LinuxPodSandboxStats.fromPartial({
    cpu: CpuUsage.fromPartial({ timestamp, usageCoreNanoSeconds: total(({ cpu }) => cpu.usageCoreNanoSeconds) }),
    memory: MemoryUsage.fromPartial({
      timestamp,
      usageBytes: total(({ memory }) => memory.usageBytes),
      workingSetBytes: total(({ memory }) => memory.workingSetBytes),
      rssBytes: total(({ memory }) => memory.rssBytes),
      pageFaults: total(({ memory }) => memory.pageFaults),
      majorPageFaults: total(({ memory }) => memory.majorPageFaults),
    }),
    process: { timestamp, processCount: { value: usages.reduce((sum, { processes }) => sum + processes, 0n) } },
  });
}

/** Samples a container or sandbox; undefined when it is not running. */
type Sampler = (container: Pick<ContainerInfo, "Id" | "State">) => Promise<Usage | undefined>;

/** Limit of concurrent samples. The daemon measures all requested containers once a second and each request waits for that, so
 *  many concurrent requests cost no more than a few, and finish sooner. */
const maxConcurrentSamples = 64;

async function createSampler(parts: Pick<DockerParts, "docker">, signal: AbortSignal): Promise<Sampler> {
  const { MemTotal } = await engineInfo(parts, signal);
  const limited = createSemaphore(maxConcurrentSamples);
  // Without one-shot the daemon waits for a second sample.
  const query = { stream: false, "one-shot": true };
  return async ({ Id, State }) => {
    if (State !== "running" && State !== "paused") return undefined;
    const taken = limited(() => parts.docker.request<StatsSample>({ path: `/containers/${Id}/stats`, query }, signal));
    const sample = await ignoreCode(taken, "not_found", "conflict");
    return sample && parseUsage(sample, MemTotal);
  };
}

/** Usage of a container's writable layer; undefined while unknown. */
type WritableLayer = (containerId: string) => FilesystemUsage | undefined;

/** Measures the writable layers of this node's containers in one request, for which the daemon walks every layer. */
function createWritableLayers(parts: DockerParts): (signal: AbortSignal) => Promise<WritableLayer> {
  const { clock, log } = parts;
  const layersDirectory = createLayersDirectory(parts);
  const read = async (signal: AbortSignal): Promise<Layers> => {
    const [{ path }, sizes] = await Promise.all([layersDirectory(signal), readLayerSizes(parts, signal)]);
    return { mountpoint: path, sizes };
  };
  const layers = createSlowMeasurement({ what: "container sizes", read, clock, log });
  return async (signal) => {
    const reading = await layers(signal);
    return (id) => {
      const bytes = reading?.value.sizes.get(id);
      if (!reading || bytes === undefined) return undefined;
      return FilesystemUsage.fromPartial({
        timestamp: BigInt(reading.at) * 1_000_000n,
        fsId: { mountpoint: reading.value.mountpoint },
        usedBytes: { value: BigInt(bytes) },
      });
    };
  };
}

interface Layers {
  readonly mountpoint: string;
  /** Bytes, by container ID. */
  readonly sizes: ReadonlyMap<string, number>;
}

async function readLayerSizes(parts: DockerParts, signal: AbortSignal): Promise<Layers["sizes"]> {
  const filters = JSON.stringify({ label: [`${nodeLabel}=${parts.nodeName}`] });
  const query = { all: true, size: true, filters };
  const containers = await parts.docker.request<(ContainerInfo & { readonly SizeRw?: number })[]>(
    { path: "/containers/json", query },
    signal,
    "none",
  );
  // The daemon omits a size of 0.
  return new Map(containers.map(({ Id, SizeRw = 0 }) => [Id, SizeRw]));
}
