/** What a driver reports about this node. */
export interface DriverFacts {
  readonly nodeID: string;
  /** Maximum number of volumes of the driver on the node; 0 means no limit. */
  readonly maxVolumes: bigint;
  readonly topology: Readonly<Record<string, string>>;
}
