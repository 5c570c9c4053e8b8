import { coalesce } from "../../lib/coalesce.ts";
import { untilAborted } from "../../lib/service-group.ts";
import type { Host } from "../../seams/host.ts";
import { type DataDirectory, dataOfDevices, dataOfPods, dataOfStaged, devicesOfPods } from "./volume-data.ts";

/** What lies on the target of volumes of storage drivers. */
export interface DriverVolumes {
  readonly staged: readonly DataDirectory[];
  /** In pods' directories. */
  readonly used: readonly DataDirectory[];
  readonly devices: ReadonlyMap<string, DataDirectory>;
  /** Names of devices that pods have a link to. */
  readonly linked: readonly string[];
}

/** Lists drivers' volumes once for all concurrent callers: hundreds that leave together would each read the files of all. A caller never
 *  gets what was read before its call. */
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
