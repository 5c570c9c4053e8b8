/** Operations on volumes, for metrics. */
export interface VolumeMeasures extends SelinuxMeasures {
  /** @param plugin the kubelet's name, such as `kubernetes.io/empty-dir`. */
  setUp(plugin: string, ms: number, failed: boolean): void;
  /** A raw block volume was mapped. */
  mapped(plugin: string, ms: number, failed: boolean): void;
  /** An expansion of a volume has ended, successfully or not. */
  expanded(plugin: string, ms: number, failed: boolean): void;
  /** A volume was torn down. @param ms duration for all volumes of its pod, which are torn down together. */
  tornDown(plugin: string, ms: number, failed: boolean): void;
  /** Like `tornDown`, for a raw block volume. */
  unmapped(plugin: string, ms: number, failed: boolean): void;
  /** The device of a raw block volume was unmapped from the node. */
  deviceUnmapped(plugin: string, ms: number, failed: boolean): void;
}

/** Labels with which volumes are mounted. If `isError`, the pod does not start; otherwise the volume is mounted without a label.
 *  `mode` is the access mode, such as RWOP; `plugin` includes the name of the CSI driver. */
export interface SelinuxMeasures {
  /** The label of a container cannot be computed. */
  selinuxContainerFailed(isError: boolean, mode: string): void;
  /** Containers of a pod share a volume with different labels. */
  selinuxContainersDiffer(isError: boolean, mode: string): void;
  /** Pods share a volume with different labels. */
  selinuxPodsDiffer(isError: boolean, plugin: string, mode: string): void;
  /** A volume is about to be mounted with a label. */
  selinuxAdmitted(plugin: string, mode: string): void;
}
