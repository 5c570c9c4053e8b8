import type { Clock } from "../lib/clock.ts";
import { CodedError } from "../lib/errors.ts";
import { silentLog } from "../lib/log.ts";
import type { Host } from "../seams/host.ts";
import { iscsiUnmounter } from "../volumes/persistent/iscsi-unmounter.ts";
import { createCsiVolumeLister } from "../volumes/persistent/csi-volume-lister.ts";
import type { UnmounterDeps } from "../volumes/persistent/unmounter.ts";

/** Unmounts the iSCSI disks of a node whose pods are gone, and logs out of their targets. Disks are unstaged one at a time.
 *  @returns a function that takes the identity of a disk, and throws if the disk has to stay. */
export function createIscsiUnstaging({
  host,
  clock,
  rootDir,
}: {
  readonly host: Host;
  readonly clock: Clock;
  readonly rootDir: string;
}): (id: string, signal: AbortSignal) => Promise<void> {
  const deps: UnmounterDeps = {
    host,
    rootDir,
    clock,
    log: silentLog(),
    measures: { deviceUnmapped: () => undefined },
    drivers: { driver: noDriver },
    listVolumes: createCsiVolumeLister({ host, rootDir }),
    serialize: (_key, work) => work(),
  };
  return async (id, signal) => {
    if (await iscsiUnmounter.unstage(deps, id, signal)) return;
    throw new CodedError("failed_precondition", "a pod of the node uses it");
  };
}

function noDriver(name: string): never {
  throw new CodedError("not_found", `CSI driver ${name} does not manage iSCSI disks`);
}
