import type { StorageDrivers } from "../../drivers.ts";
import type { Clock } from "../../lib/clock.ts";
import type { Logger } from "../../lib/log.ts";
import type { VolumeMeasures } from "../../measures.ts";
import type { Host } from "../../seams/host.ts";
import type { DataLister } from "./data-lister.ts";

export interface UnpublishDeps {
  readonly host: Host;
  /** The target's root directory. */
  readonly rootDir: string;
  readonly drivers: Pick<StorageDrivers, "driver">;
  readonly log: Logger;
  readonly clock: Clock;
  readonly measures: Pick<VolumeMeasures, "deviceUnmapped">;
}

export interface LeavingDeps extends UnpublishDeps {
  readonly lying: DataLister;
}

/** A directory that must stay, and why. */
export interface Kept {
  readonly path: string;
  readonly why: unknown;
}

/** Removes the volumes of one type from the target. All state is read from the target, so it works after a crash, too; every
 *  step is safe to repeat. */
export interface Leaving {
  /** Full name of the kubelet's plugin. */
  readonly plugin: string;
  /** True if volumes of this type are attached to the node: the cluster has to know which of them are in use. */
  readonly attaches?: true;
  /** Unpublishes a pod's volumes of this type, if that takes more than unmounting. @returns directories that must stay. */
  readonly unpublish?: (deps: UnpublishDeps, uid: string, signal: AbortSignal) => Promise<readonly Kept[]>;
  /** Removes leftovers of set-ups and removals that an earlier process did not finish. */
  readonly tidy?: (deps: LeavingDeps, signal: AbortSignal) => Promise<void>;
  /** Identities of staged volumes. @param known identities that may be among them. */
  staged(deps: LeavingDeps, known: readonly string[], signal: AbortSignal): Promise<readonly string[]>;
  /** Unstages a volume, unless a pod uses it. @returns true if it is gone. @throws if it has to stay. */
  unstage(deps: LeavingDeps, id: string, signal: AbortSignal): Promise<boolean>;
}
