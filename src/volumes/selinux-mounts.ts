import { hasSelinux } from "../host/exists.ts";
import { type ContainerLabels, readContainerLabels } from "../host/selinux.ts";
import type { Clock } from "../lib/clock.ts";
import { messageOf } from "../lib/errors.ts";
import type { PersistentVolume, Pod } from "../objects.ts";
import type { HostFs } from "../seams/host.ts";
import { UnprocessedVolumeError } from "./failure.ts";
import type { SelinuxMeasures } from "./measures.ts";
import { fileLabel, optionsOfVolume, randomLevel, shortAccessMode } from "./selinux-label.ts";

/** A pod's persistent volume whose SELinux label is to be determined. */
export interface LabelRequest {
  readonly pod: Pod;
  /** Name of the volume in the pod's spec. */
  readonly name: string;
  readonly volume: PersistentVolume;
  /** Identity of the volume on the node. */
  readonly id: string;
  /** The kubelet's name of the plugin, with that of the CSI driver: `kubernetes.io/csi/name`. */
  readonly plugin: string;
  /** True if the volume can be mounted with a label. */
  readonly isSupported: (signal: AbortSignal) => Promise<boolean>;
  /** The label with which an earlier process mounted the volume for the pod; empty if it has none, undefined if the volume is not
   *  mounted. */
  readonly mountedLabel: (signal: AbortSignal) => Promise<string | undefined>;
}

/** Labels with which persistent volumes are mounted (`-o context=…`), instead of changing the label of each file. */
export interface SelinuxMounts {
  /** True when the target has SELinux. */
  isEnabled(signal: AbortSignal): Promise<boolean>;
  /** The label to mount a pod's volume with; empty to mount without one, undefined if the target has no SELinux. The pod counts as
   *  a user of the volume until `release`. @throws UnprocessedVolumeError in the kubelet's words if containers or pods need
   *  different labels. */
  labelOf(request: LabelRequest, signal: AbortSignal): Promise<string | undefined>;
  /** The pod's volumes are unmounted. */
  release(uid: string): void;
}

export interface SelinuxMountsDeps {
  readonly host: { readonly fs: Pick<HostFs, "stat" | "readFile"> };
  /** Feature gate SELinuxMount: volumes of all access modes, not only ReadWriteOncePod, are mounted with a label. */
  readonly mountsAllModes: boolean;
  readonly measures: SelinuxMeasures;
  readonly clock: Pick<Clock, "jitter">;
}

interface LabelledVolume {
  /** The label of the first pod that uses the volume. */
  readonly requested: string;
  /** The label with which the volume is mounted; empty if volumes of its access mode are mounted without labels. */
  readonly mounted: string;
  readonly pods: Set<string>;
}

/** @see https://kubernetes.io/docs/tasks/configure-pod-container/security-context/#efficient-selinux-volume-relabeling */
export function createSelinuxMounts(deps: SelinuxMountsDeps): SelinuxMounts {
  const { host, measures, clock } = deps;
  const volumes = new Map<string, LabelledVolume>();
  let enabled: boolean | undefined;
  let labels: ContainerLabels | undefined;
  const isEnabled = async (signal: AbortSignal) => (enabled ??= await hasSelinux(host.fs, signal));
  const isMounted = ({ spec }: PersistentVolume) =>
    deps.mountsAllModes || (spec?.accessModes?.length === 1 && spec.accessModes[0] === "ReadWriteOncePod");

  /** The label that the pod's containers need; undefined if they need different ones. That is an error only for a volume that is
   *  mounted with a label. */
  const requestedBy = async ({ pod, name, volume }: LabelRequest, signal: AbortSignal) => {
    const mode = shortAccessMode(volume);
    const isStrict = isMounted(volume);
    const options = optionsOfVolume(pod, name);
    if (options.length > 0) labels ??= await readContainerLabels(host.fs, signal);
    const found = new Set<string>();
    try {
      for (const own of options)
        found.add(fileLabel(labels ?? { process: "", file: "" }, own, () => randomLevel(clock)));
    } catch (error) {
      measures.selinuxContainerFailed(isStrict, mode);
      if (isStrict) throw new UnprocessedVolumeError(messageOf(error));
      return "";
    }
    const [label = "", ...others] = found;
    if (others.length === 0) return label;
    measures.selinuxContainersDiffer(isStrict, mode);
    if (isStrict) throw new UnprocessedVolumeError(`multiple SELinux labels found: ${[...found].sort().join()}`);
    return undefined;
  };

  const isRecursive = ({ spec }: Pod) => spec.securityContext?.seLinuxChangePolicy === "Recursive";

  /** The label to mount the volume with for this pod, regardless of other pods; undefined if the containers need different ones. */
  const labelFor = async (request: LabelRequest, isSupported: boolean, signal: AbortSignal) => {
    const label = await requestedBy(request, signal);
    return label !== undefined && (!isSupported || isRecursive(request.pod)) ? "" : label;
  };

  /** @throws UnprocessedVolumeError if pods that use the volume need another label. */
  const use = ({ volume, plugin }: LabelRequest, known: LabelledVolume, label: string) => {
    if (label === known.requested) return;
    const isStrict = isMounted(volume);
    measures.selinuxPodsDiffer(isStrict, plugin, shortAccessMode(volume));
    const pair = `${JSON.stringify(known.requested)} and ${JSON.stringify(label)}`;
    if (isStrict)
      throw new UnprocessedVolumeError(`conflicting SELinux labels of volume ${volume.metadata.name}: ${pair}`);
  };

  return {
    isEnabled,
    async labelOf(request, signal) {
      if (!(await isEnabled(signal))) return undefined;
      const { pod, volume, id, plugin } = request;
      const { uid } = pod.metadata;
      const own = volumes.get(id);
      if (own?.pods.has(uid)) return own.mounted;
      const isSupported = await request.isSupported(signal);
      const asked = await labelFor(request, isSupported, signal);
      const before = isSupported ? await request.mountedLabel(signal) : undefined;
      const label = before ?? asked ?? "";
      const known = volumes.get(id);
      if (known && isSupported && asked !== undefined) use(request, known, label);
      const mounted = before ?? (isMounted(volume) ? label : "");
      const used = known ?? { requested: label, mounted, pods: new Set() };
      if (!known && label !== "") measures.selinuxAdmitted(plugin, shortAccessMode(volume));
      volumes.set(id, used);
      used.pods.add(uid);
      return used.mounted;
    },
    release(uid) {
      for (const [id, { pods }] of volumes) if (pods.delete(uid) && pods.size === 0) volumes.delete(id);
    },
  };
}
