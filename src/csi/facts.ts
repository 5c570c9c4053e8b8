/** A driver's facts of this node. */
export interface DriverFacts {
  readonly nodeID: string;
  /** Volumes of the driver that the node can have; 0: no limit. */
  readonly maxVolumes: bigint;
  readonly topology: Readonly<Record<string, string>>;
}
