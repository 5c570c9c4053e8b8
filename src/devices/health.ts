import type { ContainerStatus } from "../objects.ts";
import { type Allocations, devicesOf } from "./allocations.ts";
import type { Inventory } from "./inventory.ts";

type ResourceStatuses = NonNullable<ContainerStatus["allocatedResourcesStatus"]>;

/** Health of a container's devices, ordered by name; a device that its plugin no longer lists counts as healthy. Empty for a
 *  container without devices. (kubelet, devicemanager/manager.go)
 *  @see https://kubernetes.io/docs/tasks/debug/debug-application/debug-pods/#device-health */
export function healthOf(
  { inventory, allocations }: { readonly inventory: Inventory; readonly allocations: Allocations },
  uid: string,
  containerName: string,
): ResourceStatuses {
  const has = [...allocations.ofContainer(uid, containerName)];
  return has
    .toSorted(([a], [b]) => a.localeCompare(b))
    .map(([name, allocation]) => ({
      name,
      resources: devicesOf(allocation)
        .toSorted((a, b) => a.localeCompare(b))
        .map((id) => {
          const health = inventory.device(name, id)?.health ?? "Healthy";
          return { resourceID: id, health: health === "Healthy" ? "Healthy" : "Unhealthy" };
        }),
    }));
}
