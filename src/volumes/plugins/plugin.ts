import type { TokenSource } from "../../api/tokens.ts";
import type { MountLister } from "../../host/mounts.ts";
import type { ClockAndLog } from "../../lib/log.ts";
import type { VolumeMeasures } from "../measures.ts";
import type { Pod, Volume } from "../../objects.ts";
import type { EventSink, MountedVolume, NodeSource, ObjectCache, WaitForTarget, CsiDrivers } from "../../pipeline.ts";
import type { Host } from "../../seams/host.ts";
import type { ExpansionStates } from "../persistent/expansion-states.ts";
import type { PersistentVolumeStates } from "../persistent/volume-states.ts";
import type { SelinuxMounts } from "../selinux-mounts.ts";
import type { Claims, PodCertificateSource, TrustBundleSource } from "../ports.ts";

/** Dependencies of setting up volumes. */
export interface VolumeDeps extends NodeSource, ClockAndLog {
  readonly host: Host;
  readonly objects: ObjectCache;
  readonly claims: Claims;
  readonly drivers: CsiDrivers;
  /** Called with the names, as the cluster knows them, of attached volumes that pods use. */
  readonly onVolumesInUse: (names: readonly string[]) => void;
  readonly tokens: TokenSource;
  readonly trustBundles: TrustBundleSource;
  readonly podCertificates: PodCertificateSource;
  readonly events: EventSink;
  readonly waitForTarget: WaitForTarget | undefined;
  readonly measures: VolumeMeasures;
  readonly nodeName: string;
  /** The target's root directory, such as /var/lib/kubelet. */
  readonly rootDir: string;
  /** Feature gate SELinuxMount. */
  readonly mountsAllModes: boolean;
  /** Allocatable resources of the node, as quantities by name. */
  readonly allocatable: () => Readonly<Record<string, string>>;
}

/** Adds per-volume state and facts of the target. */
export interface SetUpDeps extends VolumeDeps {
  /** Content digests by directory; an entry is absent until this process has written or checked the directory. */
  readonly contentDigests: Map<string, string>;
  /** True if nothing of this volume exists on the target yet, so that checks can be skipped. */
  readonly fresh: boolean;
  /** Runs work that removes files of the pod's volumes, while none of its containers is being created or started. */
  readonly replaceFiles: (replace: () => Promise<void>) => Promise<void>;
  readonly mounts: MountLister;
  readonly volumeStates: PersistentVolumeStates;
  readonly expansionStates: ExpansionStates;
  /** Called while the volume waits to be attached, and with undefined once it is attached.
   *  @param isExhausted asks the cluster whether the node has reached its attachment limit. */
  readonly onAwaitingAttach: (isExhausted: ((signal: AbortSignal) => Promise<boolean>) | undefined) => void;
  readonly selinuxMounts: SelinuxMounts;
  /** True if the target supports tmpfs mounts without swap. */
  readonly noswap: (signal: AbortSignal) => Promise<boolean>;
}

export interface VolumeReady extends MountedVolume {
  /** Time of the next refresh for an aging token, milliseconds since the epoch. */
  readonly refreshAt?: number;
  /** Identity of a persistent volume that can be expanded while the pod uses it. */
  readonly expandableId?: string;
}

/** A volume plugin: the implementation of one volume type. */
export interface VolumePlugin {
  /** True if the content may change while the pod runs and must be refreshed. */
  readonly refreshes: boolean;
  /** Sets up or refreshes the volume. Safe to repeat. @throws an error with the text of the FailedMount event. */
  setUp(deps: SetUpDeps, pod: Pod, volume: Volume, signal: AbortSignal): Promise<VolumeReady>;
}
