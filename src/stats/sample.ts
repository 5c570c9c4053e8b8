import type { GroupUsage } from "../host/cgroup-usage.ts";
import type { InterfaceTraffic } from "../host/net-dev.ts";

// Measurements of a node at one moment. Times are milliseconds since the epoch, by graftlet's clock.

export interface Sample {
  readonly at: number;
  /** The machine as a whole. */
  readonly node: Measured;
  readonly bootedAt: number;
  readonly network: readonly InterfaceTraffic[];
  readonly processes: number;
  /** Names of block devices such as `/dev/sda`, by `major:minor`. */
  readonly devices: ReadonlyMap<string, string>;
  /** Cgroups of all pods and of QoS classes, by path. */
  readonly groups: ReadonlyMap<string, Measured>;
  readonly pods: readonly PodSample[];
}

/** Usage, including the recent CPU usage. */
export interface Measured extends GroupUsage {
  /** CPU usage between the last two samples, nanocores; 0 with a single sample, undefined for usage reported by the runtime. */
  readonly nanoCores?: number;
}

export interface PodSample {
  readonly uid: string;
  readonly name: string;
  readonly namespace: string;
  /** Path of its cgroup from the root; undefined if unknown. */
  readonly path?: string;
  /** Creation time of its sandbox. */
  readonly startedAt: number;
  readonly measured?: Measured;
  /** Undefined for a hostNetwork pod, since the traffic is the node's. */
  readonly network?: readonly InterfaceTraffic[];
  /** Running containers, one per name. */
  readonly containers: readonly ContainerSample[];
  readonly sandbox?: ContainerSample;
}

/** Number of a pod's processes: the sum of its containers' if known, otherwise the cgroup's; undefined if unknown. The
 *  sandbox's process is not counted. (kubelet, with CRI) */
export function processesOf({ measured, containers }: PodSample): number | undefined {
  const counts = containers.flatMap((one) => one.measured?.processes ?? []);
  return counts.length > 0 ? counts.reduce((sum, count) => sum + count, 0) : measured?.processes;
}

export interface ContainerSample {
  readonly id: string;
  /** Empty for a sandbox. */
  readonly name: string;
  readonly image: string;
  readonly createdAt: number;
  readonly startedAt: number;
  /** Path of its cgroup from the root; undefined if unknown. */
  readonly path?: string;
  readonly measured?: Measured;
}
