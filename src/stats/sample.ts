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
  /** Cgroups that belong to no single pod, by path: that of all pods and those of QoS classes. */
  readonly groups: ReadonlyMap<string, Measured>;
  readonly pods: readonly PodSample[];
}

/** Usage, including the recent CPU usage. */
export interface Measured extends GroupUsage {
  /** Billionths of a core between the last two samples; with a single one 0, and undefined where the runtime told it. */
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
  /** Undefined for a pod on the node's own network, whose traffic is not the pod's. */
  readonly network?: readonly InterfaceTraffic[];
  /** Running containers, one per name. */
  readonly containers: readonly ContainerSample[];
  readonly sandbox?: ContainerSample;
}

/** Number of a pod's processes: those of its containers where they are counted, else those of its cgroup; undefined if unknown. That
 *  of the sandbox is not the pod's. (kubelet, with CRI) */
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
