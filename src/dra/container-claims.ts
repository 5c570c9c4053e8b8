import type { DynamicResource } from "../gen/pod-resources.ts";
import type { Container, Pod } from "../objects.ts";
import type { ResourceStatuses } from "../resource-manager.ts";
import { type ClaimUse, claimUsesOf } from "./claim-names.ts";
import { type ClaimRecord, type ClaimRecords, type PreparedDevice, claimDevices } from "./claim-records.ts";
import type { DeviceHealthRecords } from "./device-health.ts";

/** Health of the devices of a container's claims, claim by claim; empty for an init container, whose status does not show health.
 *  (kubelet, cm/dra/manager.go)
 *  @param withMessages the feature gate ResourceHealthStatusMessage is on. */
export function claimHealth(
  { records, health }: { readonly records: ClaimRecords; readonly health: Pick<DeviceHealthRecords, "get"> },
  pod: Pod,
  containerName: string,
  withMessages: boolean,
): ResourceStatuses {
  const container = pod.spec.containers.find(({ name }) => name === containerName);
  if (!container) return [];
  const healthOf = (device: PreparedDevice & { readonly driver: string }) => {
    const { health: state, message } = health.get(device.driver, device);
    return { resourceID: resourceId(device), health: state, ...(withMessages && message !== "" && { message }) };
  };
  return knownUses(records, pod, container).flatMap(({ use: { podClaimName, request }, record }) => {
    if (podClaimName === undefined) return [];
    const resources = new Map(claimDevices(record, request).map((device) => [resourceId(device), healthOf(device)]));
    const name = request === "" ? `claim:${podClaimName}` : `claim:${podClaimName}/${request}`;
    return resources.size > 0 ? [{ name, resources: [...resources.values()] }] : [];
  });
}

/** Devices of a container's claims, for the PodResources API: a claim is listed once, with all of its devices. */
export function dynamicResources(records: ClaimRecords, pod: Pod, container: Container): readonly DynamicResource[] {
  const claims = new Set(knownUses(records, pod, container).map(({ record }) => record));
  return [...claims].map((record) => ({
    claimName: record.name,
    claimNamespace: record.namespace,
    claimResources: claimDevices(record, "").map(({ driver, poolName, deviceName, shareId, cdiDeviceIds }) => ({
      cdiDevices: cdiDeviceIds.map((name) => ({ name })),
      driverName: driver,
      poolName,
      deviceName,
      shareId,
    })),
  }));
}

/** A device's name in a pod's status. */
function resourceId({
  driver,
  poolName,
  deviceName,
  cdiDeviceIds,
}: PreparedDevice & { readonly driver: string }): string {
  return cdiDeviceIds[0] ?? `${driver}/${poolName}/${deviceName}`;
}

/** A container's uses of claims that have a record on this node; empty while a claim does not exist yet. */
function knownUses(
  records: ClaimRecords,
  pod: Pod,
  container: Container,
): readonly { readonly use: ClaimUse; readonly record: ClaimRecord }[] {
  let uses: readonly ClaimUse[];
  try {
    uses = claimUsesOf(pod, container);
  } catch {
    return [];
  }
  return uses.flatMap((use) => {
    const record = records.get(pod.metadata.namespace, use.name);
    return record ? [{ use, record }] : [];
  });
}
