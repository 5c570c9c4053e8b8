import type { PersistentVolume, Pod } from "../../objects.ts";
import type { PersistentPlace } from "../../pipeline.ts";
import type { Leaving } from "./leaving.ts";
import type { SetUpDeps, VolumeDeps, VolumeReady } from "../kinds/kind.ts";

/** A pod's use of a persistent volume. */
export interface Use {
  readonly pod: Pod;
  readonly volume: PersistentVolume;
  readonly readOnly: boolean;
  /** Mount options of the volume, without duplicates, sorted. */
  readonly options: readonly string[];
}

/** Place of a volume in a pod, as its type knows it. */
export type Published = Pick<VolumeReady, "hostPath" | "refreshAt" | "unlabelled"> & Pick<PersistentPlace, "space">;

/** One type of persistent volume. Both steps are safe to repeat, and one volume's are never taken side by side. What a pod has of it is
 *  unmounted with the pod's other volumes, by its directory alone; what is more than that is in `leaving`. */
export interface PersistentKind {
  /** Full name of the kubelet's plugin. */
  readonly plugin: string;
  readonly takesMountOptions: boolean;
  /** Identity of a volume on the node: two of one identity are the same. @throws CodedError for a volume without. */
  id(volume: PersistentVolume): string;
  /** The other half of its life; absent where nothing lies staged. */
  readonly leaving?: Leaving;
  /** Makes the volume ready on the node, once for all of its pods. @returns its path there.
   *  @throws StepError with the step's name, or what the event of the set-up shows. */
  stage(deps: SetUpDeps, use: Use, signal: AbortSignal): Promise<string>;
  /** Gives a staged volume to a pod. @param staged path on the node. @throws with the text of the FailedMount event. */
  publish(deps: SetUpDeps, use: Use, staged: string, signal: AbortSignal): Promise<Published>;
  /** The block device of a volume that containers have as a device, without links, the directory in which the node binds it for each
   *  pod, and the teller of its size; absent for a type that has none. @throws StepError with the step's name. */
  device?(
    deps: SetUpDeps,
    use: Use,
    signal: AbortSignal,
  ): Promise<{ readonly device: string; readonly directory: string } & Pick<PersistentPlace, "space">>;
  /** Makes a volume that the pod has as big as it is to be; absent for a type that does not grow on a node.
   *  @param bytes its new size. @throws ExpandError for what is more than a failed try; what the event shows. */
  expand?(deps: VolumeDeps, use: Use, bytes: bigint, signal: AbortSignal): Promise<void>;
}
