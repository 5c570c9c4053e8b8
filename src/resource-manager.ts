import type { Service } from "./lib/service-group.ts";
import type { Container, Pod } from "./objects.ts";
import type { Rejection } from "./pipeline.ts";
import type { AllocatedPod } from "./roles.ts";

/** What resource managers add to a container. Paths on the host are the target's. */
export interface ContainerAdditions {
  readonly environment: ReadonlyMap<string, string>;
  readonly mounts: readonly { readonly containerPath: string; readonly hostPath: string; readonly readOnly: boolean }[];
  /** With the permissions of cgroups: some of `r`, `w` and `m`. */
  readonly devices: readonly {
    readonly containerPath: string;
    readonly hostPath: string;
    readonly permissions: string;
  }[];
  readonly annotations: Readonly<Record<string, string>>;
  /** Full names, such as `vendor.com/gpu=0`. */
  readonly cdiDevices: readonly string[];
}

/** Manages one kind of resource of the node for its pods, from their admission to their end: devices of plugins, for example. A node has a list
 *  of them, which kubelet/resource-managers.ts makes. */
export interface ResourceManager {
  /** As in log lines. */
  readonly name: string;
  /** Allocates what a pod asks for, at its admission. A pod keeps what it has: after a restart it is admitted again.
   *  @param others the other pods that the node has admitted and that have not ended.
   *  @returns why the pod cannot be admitted. @throws unavailable; the signal's reason. */
  allocate(pod: AllocatedPod, others: readonly AllocatedPod[], signal: AbortSignal): Promise<Rejection | undefined>;
  /** Amounts of the manager's resources that count when the pod's requests are compared with what the node has, by resource name. They are
   *  asked for once the pod has its allocation. */
  allocatable(pod: Pod): Readonly<Record<string, string>>;
  /** Prepares what a container was allocated; called before the container is created, each time.
   *  @returns undefined for a container that has nothing of this manager. @throws in the kubelet's words when it cannot be prepared. */
  prepareContainer(pod: Pod, container: Container, signal: AbortSignal): Promise<ContainerAdditions | undefined>;
  /** Frees what a pod has. Its containers have stopped, and none will start. Safe to repeat. */
  release(uid: string): void;
  /** What the manager does besides, for as long as the node runs. */
  readonly services: readonly Service[];
}

/** Has each manager prepare a container, one after the other. @returns their additions, joined. @throws as the managers do. */
export async function prepareContainer(
  managers: readonly Pick<ResourceManager, "prepareContainer">[],
  pod: Pod,
  container: Container,
  signal: AbortSignal,
): Promise<ContainerAdditions | undefined> {
  const additions: (ContainerAdditions | undefined)[] = [];
  for (const manager of managers) additions.push(await manager.prepareContainer(pod, container, signal));
  return joinAdditions(additions);
}

/** Joins the additions of several managers; where two name the same variable or annotation, the first counts.
 *  @returns undefined without any. */
export function joinAdditions(additions: readonly (ContainerAdditions | undefined)[]): ContainerAdditions | undefined {
  const all = additions.filter((one) => one !== undefined);
  if (all.length < 2) return all[0];
  return {
    environment: new Map(all.toReversed().flatMap(({ environment }) => [...environment])),
    mounts: all.flatMap(({ mounts }) => mounts),
    devices: all.flatMap(({ devices }) => devices),
    annotations: Object.fromEntries(all.toReversed().flatMap(({ annotations }) => Object.entries(annotations))),
    cdiDevices: [...new Set(all.flatMap(({ cdiDevices }) => cdiDevices))],
  };
}
