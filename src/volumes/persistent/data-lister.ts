import { coalesce } from "../../lib/coalesce.ts";
import { untilAborted } from "../../lib/service-group.ts";
import type { Host } from "../../seams/host.ts";
import { type DataDirectory, dataOfDevices, dataOfPods, dataOfStaged, devicesOfPods } from "./volume-data.ts";

/** Volumes of CSI drivers found on the target. */
export interface DriverVolumes {
  readonly staged: readonly DataDirectory[];
  /** Published volumes, in the pods' directories. */
  readonly used: readonly DataDirectory[];
  readonly devices: ReadonlyMap<string, DataDirectory>;
  /** Names of block volumes that pods have a link to. */
  readonly linked: readonly string[];
}

/** Lists CSI volumes, once for all concurrent callers: otherwise hundreds of terminating pods would each read all metadata
 *  files. A result is never older than the call. */
export type DataLister = (signal: AbortSignal) => Promise<DriverVolumes>;

export function createDataLister(place: { readonly host: Host; readonly rootDir: string }): DataLister {
  const { signal: never } = new AbortController();
  let volumes: DriverVolumes = { staged: [], used: [], devices: new Map(), linked: [] };
  const read = coalesce(async () => {
    const [staged, used, devices, linked] = await Promise.all([
      dataOfStaged(place, never),
      dataOfPods(place, never),
      dataOfDevices(place, never),
      devicesOfPods(place, never),
    ]);
    volumes = { staged, used, devices, linked };
  });
  return async (signal) => {
    await untilAborted(read(), signal);
    return volumes;
  };
}
