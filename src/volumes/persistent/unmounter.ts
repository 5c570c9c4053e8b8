import type { ClockAndLog } from "../../lib/log.ts";
import type { CsiDrivers } from "../../pipeline.ts";
import type { VolumeMeasures } from "../measures.ts";
import type { Host } from "../../seams/host.ts";
import type { CsiVolumeLister } from "./csi-volume-lister.ts";

export interface UnpublishDeps extends ClockAndLog {
  readonly host: Host;
  /** The target's root directory. */
  readonly rootDir: string;
  readonly drivers: Pick<CsiDrivers, "driver">;
  readonly measures: Pick<VolumeMeasures, "deviceUnmapped">;
}

export interface UnmounterDeps extends UnpublishDeps {
  /** Runs work, one at a time for each key. */
  serialize<T>(key: string, work: () => Promise<T>): Promise<T>;
  readonly listVolumes: CsiVolumeLister;
}

/** A directory that must stay, and why. */
export interface RetainedDirectory {
  readonly path: string;
  readonly reason: unknown;
}

/** Removes the volumes of one type from the target. All state is read from the target, so this also works after a crash; every step
 *  is safe to repeat. */
export interface PersistentVolumeUnmounter {
  /** Full name of the kubelet's plugin. */
  readonly pluginName: string;
  /** Names that a volume may have in the Node's status, to report it as in use; absent if volumes of this type are not attached to
   *  nodes. */
  readonly attachedNames?: (id: string) => readonly string[];
  /** Unpublishes a pod's volumes of this type; absent if unmounting is enough. @returns directories that must stay. */
  readonly unpublish?: (deps: UnpublishDeps, uid: string, signal: AbortSignal) => Promise<readonly RetainedDirectory[]>;
  /** Removes leftovers of set-ups and removals that an earlier process did not finish. */
  readonly removeIncomplete?: (deps: UnmounterDeps, signal: AbortSignal) => Promise<void>;
  /** Identities of staged volumes. @param known identities that may be among them. */
  listStaged(deps: UnmounterDeps, known: readonly string[], signal: AbortSignal): Promise<readonly string[]>;
  /** Unstages a volume, unless a pod uses it. @returns true if it is gone. @throws if it has to stay. */
  unstage(deps: UnmounterDeps, id: string, signal: AbortSignal): Promise<boolean>;
}
