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

/** A directory that has to stay as it is, and why. */
export interface Kept {
  readonly path: string;
  readonly why: unknown;
}

/** How the volumes of one type leave the target. What lies there says what is to be done, so it is right after a crash, too; every step
 *  is safe to repeat. */
export interface Leaving {
  /** Full name of the kubelet's plugin. */
  readonly plugin: string;
  /** Its volumes are attached to the node: the cluster has to know of those that are in use. */
  readonly attaches?: true;
  /** Takes volumes of this type back from a pod, where that takes more than unmounting them. @returns what could not be. */
  readonly unpublish?: (deps: UnpublishDeps, uid: string, signal: AbortSignal) => Promise<readonly Kept[]>;
  /** Clears away what an earlier process has only begun with, or has all but ended. */
  readonly tidy?: (deps: LeavingDeps, signal: AbortSignal) => Promise<void>;
  /** Identities of volumes that lie staged. @param known some that may be among them. */
  staged(deps: LeavingDeps, known: readonly string[], signal: AbortSignal): Promise<readonly string[]>;
  /** Takes a staged volume from the node, unless a pod has it. @returns true when it is gone. @throws when it has to stay. */
  unstage(deps: LeavingDeps, id: string, signal: AbortSignal): Promise<boolean>;
}
