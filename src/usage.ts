// Usage of pods, as measured by statistics and ranked by eviction.

/** Disk usage of a pod, or of one part of it. */
export interface DiskUsage {
  readonly bytes: number;
  readonly inodes: number;
}

/** Usage of one container; unknown values are undefined. */
export interface ContainerUsage {
  /** Working set, bytes. */
  readonly memoryBytes?: number;
  /** The writable layer. */
  readonly layer?: DiskUsage;
  readonly logs?: DiskUsage;
}

/** Usage of one pod; unknown values are undefined. */
export interface PodUsage {
  /** Working set, bytes. */
  readonly memoryBytes?: number;
  readonly processes?: number;
  /** By name. */
  readonly containers: ReadonlyMap<string, ContainerUsage>;
  /** Volumes on the node's disk by name, without memory-backed volumes and claims. */
  readonly volumes: ReadonlyMap<string, DiskUsage>;
}

/** Measures pods, to rank them for eviction. */
export interface PodUsages {
  /** @param files measures disk usage as well, which may be slow.
   *  @returns usage of running pods, by UID. @throws CodedError if nothing can be measured. */
  now(files: boolean, signal: AbortSignal): Promise<ReadonlyMap<string, PodUsage>>;
}
