// The machines of a release that its replicas share, as one of them sees them.

/** A replica of the release that is alive. */
export interface ReplicaReport {
  /** Name of its Pod. */
  readonly name: string;
  /** True for a replica that hands its machines over, because its Pod is shutting down. */
  readonly leaving: boolean;
  /** Number of GraftedNodes that it owns. */
  readonly machines: number;
}

/** A machine of the release that this process does not serve. */
export interface MachineReport {
  /** Name of the GraftedNode, and so of the Node. */
  readonly name: string;
  /** Name of the Pod that serves it; absent if no living replica owns it. */
  readonly owner?: string;
  /** True if its owner says that the Node is Ready. */
  readonly ready: boolean;
  /** Reason of the object's Ready condition, or why there is none of its present owner. */
  readonly reason: string;
  readonly message: string;
  /** Address and number of pods of the Node, as last reported by an owner; absent if unknown. */
  readonly address?: string;
  readonly pods?: number;
}

/** The replicas of a release and the machines that this process does not serve. */
export interface FleetReport {
  /** Name of this process's own Pod. */
  readonly replica: string;
  /** False if the API server has not been reached recently: everything is then as last known. */
  readonly current: boolean;
  /** Sorted by name, including this one once its Lease exists. */
  readonly replicas: readonly ReplicaReport[];
  /** Sorted by name. */
  readonly machines: readonly MachineReport[];
}

/** A release that this process observes, because it serves some of its GraftedNodes. */
export interface ObservedFleet {
  /** Describes the release now; computed at each call. */
  report(): FleetReport;
  /** Calls back when the report may have changed. @returns a function that unsubscribes. */
  onChange(listener: () => void): () => void;
}
