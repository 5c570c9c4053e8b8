import type { PersistentVolume, Pod } from "../../objects.ts";
import type { PersistentVolumeFacts } from "../../pipeline.ts";
import { UnprocessedVolumeError } from "../failure.ts";
import type { PersistentVolumeUnmounter } from "./unmounter.ts";
import type { SetUpDeps, VolumeDeps, VolumeReady } from "../plugins/plugin.ts";

/** A pod's use of a persistent volume. */
export interface VolumeUse {
  readonly pod: Pod;
  readonly volume: PersistentVolume;
  readonly readOnly: boolean;
  /** Mount options of the volume, without duplicates, sorted. */
  readonly options: readonly string[];
  /** SELinux label to mount with; empty to mount without one, undefined if the target has no SELinux. */
  readonly selinuxLabel?: string | undefined;
}

export type PublishResult = Pick<VolumeReady, "hostPath" | "refreshAt" | "unlabelled"> &
  Pick<PersistentVolumeFacts, "space">;

/** Mount options for an SELinux label; empty without a label. */
export function labelOption(label: string | undefined): readonly string[] {
  return label ? [`context=${JSON.stringify(label)}`] : [];
}

/** Unstages a volume that is staged with an SELinux label other than the required one, or without it.
 *  @param staged its label; empty without one, undefined if it is not staged. @returns true if it was unstaged.
 *  @throws UnprocessedVolumeError in the kubelet's words while a pod uses it. */
export async function unstageOtherLabel(
  { volumeStates }: SetUpDeps,
  { pluginName, id, unmounter }: PersistentVolumePlugin,
  { volume, selinuxLabel }: VolumeUse,
  staged: string | undefined,
  signal: AbortSignal,
): Promise<boolean> {
  if (selinuxLabel === undefined || staged === undefined || staged === selinuxLabel) return false;
  if (unmounter && (await volumeStates.unstage(unmounter, id(volume), signal))) return true;
  const why = "because it is already mounted to a different pod with a different SELinux label";
  throw new UnprocessedVolumeError(`waiting for unmount of volume "${pluginName}/${id(volume)}", ${why}`);
}

export interface SelinuxSupport {
  /** True if this volume can be mounted with a label. */
  isSupported(deps: SetUpDeps, volume: PersistentVolume, signal: AbortSignal): Promise<boolean>;
  /** The label with which an earlier process mounted the volume for a pod; empty if it has none, undefined if the volume is not
   *  mounted. */
  mountedLabel(deps: SetUpDeps, use: VolumeUse, signal: AbortSignal): Promise<string | undefined>;
}

/** A persistent volume plugin: the implementation of one PersistentVolume type. Staging and publishing are safe to repeat, and
 *  never run concurrently for one volume. Mounts in the pod's directory are unmounted with the pod's other volumes; `unmounter`
 *  undoes everything else. */
export interface PersistentVolumePlugin {
  /** Full name of the kubelet's plugin. */
  readonly pluginName: string;
  readonly supportsMountOptions: boolean;
  /** Support for mounting with an SELinux label; absent if the type has none. */
  readonly selinux?: SelinuxSupport;
  /** Identity of a volume on the node; equal identities are the same volume. @throws CodedError for a volume without one. */
  id(volume: PersistentVolume): string;
  /** The reverse of staging and publishing; absent if the type stages nothing. */
  readonly unmounter?: PersistentVolumeUnmounter;
  /** Makes the volume ready on the node, once for all of its pods.
   *  @returns its staging path. @throws VolumeStepError with the step's name, or the text of the set-up's event. */
  stage(deps: SetUpDeps, use: VolumeUse, signal: AbortSignal): Promise<string>;
  /** Makes a staged volume available to a pod. @param staged its staging path. @throws an error with the text of the FailedMount event. */
  publish(deps: SetUpDeps, use: VolumeUse, staged: string, signal: AbortSignal): Promise<PublishResult>;
  /** Sets up a block volume.
   *  @returns the device, with links resolved; the directory in which it is bound for each pod; how to read its size. Absent if
   *  the type does not support block volumes. @throws VolumeStepError with the step's name. */
  setUpDevice?(
    deps: SetUpDeps,
    use: VolumeUse,
    signal: AbortSignal,
  ): Promise<{ readonly device: string; readonly directory: string } & Pick<PersistentVolumeFacts, "space">>;
  /** Expands a volume that a pod uses; absent if the type needs no node expansion.
   *  @param bytes the new size. @throws ExpandError for lasting reasons; otherwise an error with the event's text. */
  expand?(deps: VolumeDeps, use: VolumeUse, bytes: bigint, signal: AbortSignal): Promise<void>;
}
