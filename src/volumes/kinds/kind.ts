import type { TokenSource } from "../../api/tokens.ts";
import type { Claims, StorageDrivers } from "../../drivers.ts";
import type { MountLister } from "../../host/mounts.ts";
import type { Clock } from "../../lib/clock.ts";
import type { Logger } from "../../lib/log.ts";
import type { VolumeMeasures } from "../../measures.ts";
import type { Pod, Volume } from "../../objects.ts";
import type { EventSink, MountedVolume, NodeSource, ObjectCache, Presence } from "../../pipeline.ts";
import type { Host } from "../../seams/host.ts";
import type { Growths } from "../persistent/growths.ts";
import type { Staging } from "../persistent/staging.ts";

/** Dependencies of setting up volumes. */
export interface VolumeDeps extends NodeSource {
  readonly host: Host;
  readonly objects: ObjectCache;
  readonly claims: Claims;
  readonly drivers: StorageDrivers;
  /** Called with the attached volumes that pods use, by the names that the cluster has for them. */
  readonly inUse: (names: readonly string[]) => void;
  readonly tokens: TokenSource;
  readonly events: EventSink;
  readonly presence?: Presence;
  readonly clock: Clock;
  readonly log: Logger;
  readonly measures: VolumeMeasures;
  readonly nodeName: string;
  /** The target's root directory, such as /var/lib/kubelet. */
  readonly rootDir: string;
  /** Resources that pods may use, as quantities by name. */
  readonly allocatable: () => Readonly<Record<string, string>>;
}

/** Adds the known state of a volume and of the target. */
export interface SetUpDeps extends VolumeDeps {
  /** Digests of payloads by directory; absent before this process wrote or checked them. */
  readonly written: Map<string, string>;
  /** True when nothing of this volume exists on the target yet, so that a look is needless. */
  readonly fresh: boolean;
  /** Runs work that removes files of the pod's volumes, at a time when none of its containers is being made or started. */
  readonly replaceFiles: (replace: () => Promise<void>) => Promise<void>;
  readonly mounts: MountLister;
  readonly staging: Staging;
  readonly growths: Growths;
  /** Called while the volume waits to be attached, and without a question once it is. @param isExhausted asks the cluster if the node
   *  can have no more such volumes. */
  readonly awaiting: (isExhausted: ((signal: AbortSignal) => Promise<boolean>) | undefined) => void;
  /** True when the target has SELinux. */
  readonly selinux: (signal: AbortSignal) => Promise<boolean>;
  /** True when memory can be kept out of swap there. */
  readonly noswap: (signal: AbortSignal) => Promise<boolean>;
}

export interface VolumeReady extends MountedVolume {
  /** Time of the next refresh for an aging token, milliseconds since the epoch. */
  readonly refreshAt?: number;
  /** Identity of a persistent volume that may grow while the pod has it. */
  readonly growing?: string;
}

/** One type of volume. */
export interface VolumeKind {
  /** True when its content may change while the pod runs: it is refreshed then. */
  readonly refreshes: boolean;
  /** Sets up or refreshes the volume. Safe to repeat. @throws with the text of the FailedMount event. */
  setUp(deps: SetUpDeps, pod: Pod, volume: Volume, signal: AbortSignal): Promise<VolumeReady>;
}
