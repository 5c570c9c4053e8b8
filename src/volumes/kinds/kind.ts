import type { MountLister } from "../../host/mounts.ts";
import type { Clock } from "../../lib/clock.ts";
import type { Logger } from "../../lib/log.ts";
import type { VolumeMeasures } from "../../measures.ts";
import type { Pod, Volume } from "../../objects.ts";
import type { EventSink, MountedVolume, ObjectCache, Presence, TokenSource } from "../../pipeline.ts";
import type { Host } from "../../seams/host.ts";

/** Dependencies of setting up volumes. */
export interface VolumeDeps {
  readonly host: Host;
  readonly objects: ObjectCache;
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

/** Adds what is known of a volume, and of the target, from before. */
export interface SetUpDeps extends VolumeDeps {
  /** Digest of the payload that a directory holds, by path; absent before this process wrote or checked it. */
  readonly written: Map<string, string>;
  /** True when nothing of this volume exists on the target yet, so that a look is needless. */
  readonly fresh: boolean;
  readonly mounts: MountLister;
  /** True when memory can be kept out of swap there. */
  readonly noswap: (signal: AbortSignal) => Promise<boolean>;
}

export interface VolumeReady extends MountedVolume {
  /** Milliseconds since the epoch: when it has to be set up again, for a token that ages. */
  readonly refreshAt?: number;
}

/** One type of volume. */
export interface VolumeKind {
  /** Its content may change while the pod runs: it is set up again when it does. */
  readonly refreshes: boolean;
  /** Makes the volume ready, or current. Safe to repeat. @throws with the text that the FailedMount event shows. */
  setUp(deps: SetUpDeps, pod: Pod, volume: Volume, signal: AbortSignal): Promise<VolumeReady>;
}
