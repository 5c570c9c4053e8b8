// What pods use of what a node may run short of, as statistics measure it and eviction ranks by it.

/** Files of a pod, or of one part of it. */
export interface FileUse {
  readonly bytes: number;
  readonly inodes: number;
}

/** Usage of one container; what is not known is missing. */
export interface ContainerUsage {
  /** Working set, bytes. */
  readonly memoryBytes?: number;
  /** Its writable layer. */
  readonly layer?: FileUse;
  readonly logs?: FileUse;
}

/** A pod's usage of what a node may run short of; what is not known is missing. */
export interface PodUsage {
  /** Working set, bytes. */
  readonly memoryBytes?: number;
  readonly processes?: number;
  /** By name. */
  readonly containers: ReadonlyMap<string, ContainerUsage>;
  /** Volumes on the node's disk, by name: neither those in memory nor claims. */
  readonly volumes: ReadonlyMap<string, FileUse>;
}

/** Measures pods, to tell which of them to evict. */
export interface PodUsages {
  /** @param files measures files too, which may be slow.
   *  @returns usage of running pods, by UID. @throws CodedError when nothing can be measured. */
  now(files: boolean, signal: AbortSignal): Promise<ReadonlyMap<string, PodUsage>>;
}
