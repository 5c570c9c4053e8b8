import type { ContainerAllocateResponse } from "../gen/device-plugin.ts";

/** Devices of one resource allocated to a container. */
export interface DeviceAllocation {
  /** Device IDs by NUMA node; -1 for devices without one. A device of several nodes is listed under each. */
  readonly devices: ReadonlyMap<number, readonly string[]>;
  /** The plugin's answer. */
  readonly response: ContainerAllocateResponse;
}

export interface AllocationKey {
  readonly uid: string;
  readonly container: string;
  readonly resource: string;
}

/** Allocated devices by container. */
export type DeviceAllocations = ReturnType<typeof createDeviceAllocations>;

export function createDeviceAllocations() {
  const known = new Map<string, AllocationKey & DeviceAllocation>();
  const list = () => [...known.values()];
  return {
    get: (key: AllocationKey): DeviceAllocation | undefined => known.get(mapKey(key)),
    set: (key: AllocationKey, allocation: DeviceAllocation): void =>
      void known.set(mapKey(key), { ...key, ...allocation }),
    /** Allocations of a container, by resource. */
    ofContainer: (uid: string, container: string): ReadonlyMap<string, DeviceAllocation> =>
      new Map(
        list()
          .filter((one) => one.uid === uid && one.container === container)
          .map((one) => [one.resource, one]),
      ),
    hasPod: (uid: string): boolean => list().some((one) => one.uid === uid),
    /** Frees the devices of all other pods. @returns true if any was freed. */
    retainPods(uids: ReadonlySet<string>): boolean {
      const over = [...known].filter(([, { uid }]) => !uids.has(uid));
      for (const [key] of over) known.delete(key);
      return over.length > 0;
    },
    /** Frees the devices of a pod. @returns true if it had any. */
    remove(uid: string): boolean {
      const had = [...known].filter(([, one]) => one.uid === uid);
      for (const [key] of had) known.delete(key);
      return had.length > 0;
    },
    /** IDs of allocated devices. */
    inUse: (resource: string): ReadonlySet<string> =>
      new Set(list().flatMap((one) => (one.resource === resource ? allocatedDevices(one) : []))),
    /** Resources with allocated devices. */
    resources: (): readonly string[] => [...new Set(list().map(({ resource }) => resource))],
    /** UIDs of pods with devices. */
    podsOf(resource: string, ids: readonly string[]): readonly string[] {
      const wanted = new Set(ids);
      const having = list().filter(
        (one) => one.resource === resource && allocatedDevices(one).some((id) => wanted.has(id)),
      );
      return [...new Set(having.map(({ uid }) => uid))];
    },
    entries: list,
  };
}

/** Device IDs of an allocation, without duplicates. */
export function allocatedDevices({ devices }: Pick<DeviceAllocation, "devices">): readonly string[] {
  return [...new Set([...devices.values()].flat())];
}

/** UIDs and container names contain no spaces. */
function mapKey({ uid, container, resource }: AllocationKey): string {
  return `${uid} ${container} ${resource}`;
}
