import type { ContainerInfo } from "dockerode";
import { ContainerAttributes, ContainerStats } from "../../../src/gen/cri.ts";
import { CodedError } from "../../../src/lib/errors.ts";
import type { Stats } from "../../../src/seams/runtime.ts";
import { criLabels } from "../container/labels.ts";
import { containerType, parseContainerName, sandboxIdLabel, sandboxType } from "../container/names.ts";
import { listOwn } from "../container/own.ts";
import type { DockerParts } from "../parts.ts";
import { type MeasuredContainer, podStats } from "./pod.ts";
import { type Sampler, createSampler } from "./sampler.ts";
import { type WritableLayer, createWritableLayers } from "./writable-layers.ts";

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

/** Containers or sandboxes of this node that match the filter. */
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
