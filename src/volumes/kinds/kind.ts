import type { MountLister } from "../../host/mounts.ts";
import type { Clock } from "../../lib/clock.ts";
import type { Logger } from "../../lib/log.ts";
import type { VolumeMeasures } from "../../measures.ts";
import type { Pod, Volume } from "../../objects.ts";
import type { EventSink, MountedVolume, ObjectCache, Presence, TokenSource } from "../../pipeline.ts";
import type { Host } from "../../seams/host.ts";

/** What setting up volumes takes. */
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
  /** Nobody has made anything of this volume on the target yet, and what is not there need not be looked for. */
  readonly fresh: boolean;
  readonly mounts: MountLister;
  /** Whether memory can be kept out of swap there. */
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
