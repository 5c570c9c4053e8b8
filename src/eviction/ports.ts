// Ports of other stages that eviction needs, and the usage that they measure.

/** Frees space on the target by removing unused containers and images. */
export interface Reclaim {
  /** Removes dead containers beyond the limits, and all containers and sandboxes of terminated pods, deleted or not.
   *  @throws if the runtime cannot be queried. */
  deleteUnusedContainers(signal: AbortSignal): Promise<void>;
  /** Removes all unused images that may be removed, regardless of disk usage. @returns bytes freed.
   *  @throws if the runtime cannot be queried, or could not remove some of them. */
  deleteUnusedImages(signal: AbortSignal): Promise<number>;
}

/** Disk usage of a pod, or of one part of it. */
export interface DiskUsage {
  readonly bytes: number;
  readonly inodes: number;
}

/** Usage of one container; unknown values are undefined. */
export interface ContainerUsage {
  /** Working set, bytes. */
  readonly memoryBytes?: number;
  readonly layer?: DiskUsage;
  readonly logs?: DiskUsage;
}

/** Usage of one pod; unknown values are undefined. */
export interface PodUsage {
  /** Working set, bytes. */
  readonly memoryBytes?: number;
  readonly processes?: number;
  /** Usage of containers, by name. */
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
