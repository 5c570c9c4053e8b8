import { coalesce } from "../../lib/coalesce.ts";
import { untilAborted } from "../../lib/runnables.ts";
import type { Host } from "../../seams/host.ts";
import {
  type VolumeDataDirectory,
  blockVolumeData,
  allPodVolumeData,
  stagedVolumeData,
  allPodBlockVolumes,
} from "./csi-volume-data.ts";

/** Volumes of CSI drivers found on the target. */
export interface CsiVolumes {
  readonly staged: readonly VolumeDataDirectory[];
  readonly published: readonly VolumeDataDirectory[];
  readonly devices: ReadonlyMap<string, VolumeDataDirectory>;
  /** Names of block volumes that pods have a link to. */
  readonly linked: readonly string[];
}

/** Lists CSI volumes, once for all concurrent callers: otherwise hundreds of terminating pods would each read all metadata
 *  files. A result is never older than the call. */
export type CsiVolumeLister = (signal: AbortSignal) => Promise<CsiVolumes>;

export function createCsiVolumeLister(place: { readonly host: Host; readonly rootDir: string }): CsiVolumeLister {
  const { signal: never } = new AbortController();
  let volumes: CsiVolumes = { staged: [], published: [], devices: new Map(), linked: [] };
  const read = coalesce(async () => {
    const [staged, published, devices, linked] = await Promise.all([
      stagedVolumeData(place, never),
      allPodVolumeData(place, never),
      blockVolumeData(place, never),
      allPodBlockVolumes(place, never),
    ]);
    volumes = { staged, published, devices, linked };
  });
  return async (signal) => {
    await untilAborted(read(), signal);
    return volumes;
  };
}
