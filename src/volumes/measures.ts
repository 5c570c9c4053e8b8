/** Operations on volumes, for metrics. */
export interface VolumeMeasures {
  /** @param plugin the kubelet's name, such as `kubernetes.io/empty-dir`. */
  setUp(plugin: string, ms: number, failed: boolean): void;
  /** A raw block volume was mapped. */
  mapped(plugin: string, ms: number, failed: boolean): void;
  /** An expansion of a volume has ended, successfully or not. */
  expanded(plugin: string, ms: number, failed: boolean): void;
  /** @param ms in which all volumes of its pod were torn down together. */
  tornDown(plugin: string, ms: number, failed: boolean): void;
  /** Like `tornDown`, for a raw block volume. */
  unmapped(plugin: string, ms: number, failed: boolean): void;
  /** The device of a raw block volume was unmapped from the node. */
  deviceUnmapped(plugin: string, ms: number, failed: boolean): void;
}
