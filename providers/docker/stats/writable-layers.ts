import type { ContainerInfo } from "dockerode";
import { FilesystemUsage } from "../../../src/gen/cri.ts";
import { nodeLabel } from "../../../src/pod/labels.ts";
import { engineInfo } from "../client/engine-info.ts";
import type { DockerParts } from "../parts.ts";
import { createSlowMeasurement } from "../client/slow-measurement.ts";

/** Usage of a container's writable layer; undefined while unknown. */
export type WritableLayer = (containerId: string) => FilesystemUsage | undefined;

/** Writable layer usage of this node's containers, in one request: the daemon walks every layer for it. */
export function createWritableLayers(parts: DockerParts): (signal: AbortSignal) => Promise<WritableLayer> {
  const { clock, log } = parts;
  const read = (signal: AbortSignal) => readLayers(parts, signal);
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
  /** Bytes, by container id. */
  readonly sizes: ReadonlyMap<string, number>;
}

async function readLayers(parts: DockerParts, signal: AbortSignal): Promise<Layers> {
  const filters = JSON.stringify({ label: [`${nodeLabel}=${parts.nodeName}`] });
  const query = { all: true, size: true, filters };
  const { DockerRootDir } = await engineInfo(parts, signal);
  const containers = await parts.docker.request<(ContainerInfo & { readonly SizeRw?: number })[]>(
    {
      path: "/containers/json",
      query,
    },
    signal,
    "none",
  );
  // The daemon omits a size of 0.
  return { mountpoint: DockerRootDir, sizes: new Map(containers.map(({ Id, SizeRw = 0 }) => [Id, SizeRw])) };
}
