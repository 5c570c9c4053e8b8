import { ContainerAllocateResponse } from "../gen/device-plugin.ts";
import { decodeBounded, pluginLimits } from "../lib/bounded-decode.ts";
import { parseBoundedJson } from "../lib/bounded-text.ts";
import { CodedError, messageOf } from "../lib/errors.ts";
import { dumpList, dumpMap } from "../lib/go-dump.ts";
import { fnv32a } from "../pod/hash.ts";
import { createCheckpoint } from "../host/checkpoint.ts";
import { pluginFiles } from "../host/layout.ts";
import type { Logger } from "../lib/log.ts";
import type { DeviceAllocation, AllocationKey, DeviceAllocations } from "./allocations.ts";
import type { PluginDirectory } from "./directory.ts";
import type { Inventory } from "./inventory.ts";

/** Device state that survives a restart. */
export interface DeviceCheckpoint {
  readonly allocations: readonly (AllocationKey & DeviceAllocation)[];
  /** Healthy devices by resource. */
  readonly registered: ReadonlyMap<string, readonly string[]>;
}

/** File format of the kubelet, so that either agent can take over from the other. (kubelet,
 *  devicemanager/checkpoint/checkpoint.go) */
interface CheckpointFile {
  readonly Data: CheckpointData;
  readonly Checksum: number;
}

interface CheckpointData {
  readonly PodDeviceEntries: readonly PodDevicesEntry[] | null;
  readonly RegisteredDevices: Readonly<Record<string, readonly string[] | null>> | null;
}

interface PodDevicesEntry {
  readonly PodUID: string;
  readonly ContainerName: string;
  readonly ResourceName: string;
  readonly DeviceIDs: Readonly<Record<string, readonly string[]>> | null;
  /** The plugin's serialized response, base64. */
  readonly AllocResp: string | null;
}

/** Checkpoint of the device state on the target. */
export function createDeviceCheckpoint(
  directory: Pick<PluginDirectory, "readCheckpoint" | "writeCheckpoint">,
  inventory: Inventory,
  allocations: DeviceAllocations,
  log: Logger,
) {
  return createCheckpoint({
    path: pluginFiles.checkpoint,
    read: directory.readCheckpoint,
    restore(text: string) {
      const checkpoint = decodeDeviceCheckpoint(text);
      for (const { uid, container, resource, ...allocation } of checkpoint.allocations)
        allocations.set({ uid, container, resource }, allocation);
      inventory.restore([...checkpoint.registered.keys()]);
    },
    write: () =>
      directory.writeCheckpoint(
        encodeDeviceCheckpoint({ allocations: allocations.entries(), registered: inventory.registered() }),
      ),
    unreadable: "cannot read the device checkpoint; starting without allocations",
    unwritable: `failed to write checkpoint file "${pluginFiles.checkpoint}"`,
    log,
  });
}

export function encodeDeviceCheckpoint({ allocations, registered }: DeviceCheckpoint): string {
  const entries = allocations.map(({ uid, container, resource, devices, response }) => ({
    PodUID: uid,
    ContainerName: container,
    ResourceName: resource,
    DeviceIDs: Object.fromEntries([...devices].map(([node, ids]) => [String(node), ids])),
    AllocResp: Buffer.from(ContainerAllocateResponse.encode(response).finish()).toString("base64"),
  }));
  const Data: CheckpointData = {
    PodDeviceEntries: entries.length > 0 ? entries : null,
    RegisteredDevices: Object.fromEntries(registered),
  };
  const file: CheckpointFile = { Data, Checksum: checksum(Data) };
  return JSON.stringify(file);
}

/** @throws CodedError invalid_argument for a corrupt file. */
export function decodeDeviceCheckpoint(text: string): DeviceCheckpoint {
  try {
    return checked(parseBoundedJson(Buffer.from(text)) as CheckpointFile);
  } catch (error) {
    const why = `device plugin checkpoint is corrupt: ${messageOf(error)}`;
    throw new CodedError("invalid_argument", why, { cause: error });
  }
}

/** The checksum covers the whole data. */
function checked({ Data, Checksum }: CheckpointFile): DeviceCheckpoint {
  if (checksum(Data) !== Checksum) throw new Error("checksum mismatch");
  return {
    allocations: (Data.PodDeviceEntries ?? []).map((entry) => ({
      uid: entry.PodUID,
      container: entry.ContainerName,
      resource: entry.ResourceName,
      devices: new Map(Object.entries(entry.DeviceIDs ?? {}).map(([node, ids]) => [Number(node), ids])),
      response: decodeBounded(
        ContainerAllocateResponse.decode,
        Buffer.from(entry.AllocResp ?? "", "base64"),
        pluginLimits,
      ),
    })),
    registered: new Map(Object.entries(Data.RegisteredDevices ?? {}).map(([name, ids]) => [name, ids ?? []])),
  };
}

/** FNV-1a over Go's typed dump of the data. */
function checksum({ PodDeviceEntries: entries, RegisteredDevices: registered }: CheckpointData): number {
  const list = entries === null ? nil : dumpList(entries.map(dumpEntry));
  const resources = registered && dumpMap(Object.entries(registered).map(([name, ids]) => [name, dumpIds(ids)]));
  return fnv32a(
    `(checkpoint.checkpointData){PodDeviceEntries:([]checkpoint.PodDevicesEntry)${list}` +
      ` RegisteredDevices:(map[string][]string)${resources ?? nil}}`,
  );
}

const nil = "<nil>";

function dumpEntry({ PodUID, ContainerName, ResourceName, DeviceIDs, AllocResp }: PodDevicesEntry): string {
  const bytes = AllocResp === null ? nil : dumpList(Buffer.from(AllocResp, "base64"));
  const devices = DeviceIDs && dumpMap(Object.entries(DeviceIDs).map(([node, ids]) => [Number(node), dumpIds(ids)]));
  return (
    `{PodUID:(string)${PodUID} ContainerName:(string)${ContainerName} ResourceName:(string)${ResourceName}` +
    ` DeviceIDs:(checkpoint.DevicesPerNUMA)${devices ?? nil} AllocResp:([]uint8)${bytes}}`
  );
}

function dumpIds(ids: readonly string[] | null): string {
  return ids === null ? nil : dumpList(ids);
}
