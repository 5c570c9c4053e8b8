import type { GroupUsage } from "../host/cgroup-usage.ts";
import type { InterfaceTraffic } from "../host/net-dev.ts";

// What is measured of a node at one moment. Times are milliseconds since the epoch, by graftlet's clock.

export interface Sample {
  readonly at: number;
  /** Of the machine as a whole. */
  readonly node: Measured;
  readonly bootedAt: number;
  readonly network: readonly InterfaceTraffic[];
  readonly processes: number;
  /** Names of block devices such as `/dev/sda`, by `major:minor`. */
  readonly devices: ReadonlyMap<string, string>;
  /** Cgroups that are no pod's, by path: that of all pods and those of service classes. */
  readonly groups: ReadonlyMap<string, Measured>;
  readonly pods: readonly PodSample[];
}

/** Usage, and what of the CPU was used lately. */
export interface Measured extends GroupUsage {
  /** Billionths of a core, between the last two samples; undefined with a single one. */
  readonly nanoCores?: number;
}

export interface PodSample {
  readonly uid: string;
  readonly name: string;
  readonly namespace: string;
  /** Path of its cgroup from the top; undefined where it has none that is known. */
  readonly path?: string;
  /** When its sandbox was made. */
  readonly startedAt: number;
  readonly measured?: Measured;
  /** Undefined for a pod on the node's own network: what went through that is not the pod's. */
  readonly network?: readonly InterfaceTraffic[];
  /** Running containers, one a name. */
  readonly containers: readonly ContainerSample[];
  readonly sandbox?: ContainerSample;
}

export interface ContainerSample {
  readonly id: string;
  /** Empty for a sandbox. */
  readonly name: string;
  readonly image: string;
  readonly startedAt: number;
  /** Path of its cgroup from the top; undefined where it is not known. */
  readonly path?: string;
  readonly measured?: Measured;
}
