import { crc32 } from "node:zlib";
import { parseBoundedJson } from "../lib/bounded-text.ts";
import { CodedError, ignoreNotFound, messageOf } from "../lib/errors.ts";
import { createCheckpoint } from "../host/checkpoint.ts";
import { claimCheckpoint } from "../host/layout.ts";
import { replaceFile } from "../host/replace-file.ts";
import type { Logger } from "../lib/log.ts";
import type { HostFs } from "../seams/host.ts";
import type { ClaimRecord, ClaimRecords } from "./claim-records.ts";

const kind = "DRACheckpoint";
const apiVersion = "checkpoint.dra.kubelet.k8s.io/v1";

/** File format of the kubelet, so that either agent can take over from the other. (kubelet, cm/dra/state/checkpoint.go) */
interface CheckpointFile {
  /** JSON of the data. */
  readonly Data: string;
  /** CRC-32 (IEEE) of the data. */
  readonly Checksum: number;
}

interface CheckpointData {
  readonly kind: string;
  readonly apiVersion: string;
  readonly ClaimInfoStateList: readonly ClaimInfoState[] | null;
}

interface ClaimInfoState {
  readonly ClaimUID: string;
  readonly ClaimName: string;
  readonly Namespace: string;
  readonly PodUIDs: Readonly<Record<string, object>> | null;
  readonly DriverState: Readonly<Record<string, { readonly Devices: readonly DeviceState[] | null }>> | null;
}

interface DeviceState {
  readonly PoolName: string;
  readonly DeviceName: string;
  readonly ShareID?: string | null;
  readonly RequestNames: readonly string[] | null;
  readonly CDIDeviceIDs: readonly string[] | null;
}

/** Checkpoint of the claims that pods use, on the target. */
export function createClaimCheckpoint(
  fs: Pick<HostFs, "readFile" | "apply">,
  rootDir: string,
  records: ClaimRecords,
  log: Logger,
) {
  const path = `${rootDir}/${claimCheckpoint}`;
  return createCheckpoint({
    path,
    read: (signal) => ignoreNotFound(fs.readFile(path, { signal })),
    restore: (text: Buffer) => records.restore(decodeClaimCheckpoint(text)),
    write: () => fs.apply(replaceFile(path, encodeClaimCheckpoint(records.all()), 0o600)),
    unreadable: "cannot read the checkpoint of ResourceClaims; starting without claims",
    unwritable: "checkpoint ResourceClaim state",
    log,
  });
}

/** Text of a checkpoint file. */
export function encodeClaimCheckpoint(claims: readonly ClaimRecord[]): string {
  const data: CheckpointData = {
    kind,
    apiVersion,
    ClaimInfoStateList: claims.map(({ uid, name, namespace, pods, drivers }) => ({
      ClaimUID: uid,
      ClaimName: name,
      Namespace: namespace,
      PodUIDs: Object.fromEntries([...pods].map((pod) => [pod, {}])),
      DriverState: Object.fromEntries(
        [...drivers].map(([driver, devices]) => [
          driver,
          {
            Devices: devices.map(({ poolName, deviceName, shareId, requestNames, cdiDeviceIds }) => ({
              PoolName: poolName,
              DeviceName: deviceName,
              ShareID: shareId ?? null,
              RequestNames: requestNames,
              CDIDeviceIDs: cdiDeviceIds,
            })),
          },
        ]),
      ),
    })),
  };
  const Data = JSON.stringify(data);
  const file: CheckpointFile = { Data, Checksum: crc32(Data) };
  return JSON.stringify(file);
}

/** @throws CodedError invalid_argument for a corrupt file. */
export function decodeClaimCheckpoint(text: Buffer): readonly ClaimRecord[] {
  try {
    const { Data, Checksum } = parseBoundedJson(text) as CheckpointFile;
    if (crc32(Data) !== Checksum) throw new Error("checksum mismatch");
    const { ClaimInfoStateList } = parseBoundedJson(Buffer.from(Data)) as CheckpointData;
    return (ClaimInfoStateList ?? []).map(decodeClaim);
  } catch (error) {
    const why = `checkpoint of ResourceClaims is corrupt: ${messageOf(error)}`;
    throw new CodedError("invalid_argument", why, { cause: error });
  }
}

function decodeClaim({ ClaimUID, ClaimName, Namespace, PodUIDs, DriverState }: ClaimInfoState): ClaimRecord {
  return {
    uid: ClaimUID,
    name: ClaimName,
    namespace: Namespace,
    pods: new Set(Object.keys(PodUIDs ?? {})),
    drivers: new Map(
      Object.entries(DriverState ?? {}).map(([driver, { Devices }]) => [
        driver,
        (Devices ?? []).map(({ PoolName, DeviceName, ShareID, RequestNames, CDIDeviceIDs }) => ({
          poolName: PoolName,
          deviceName: DeviceName,
          ...(ShareID && { shareId: ShareID }),
          requestNames: RequestNames ?? [],
          cdiDeviceIds: CDIDeviceIDs ?? [],
        })),
      ]),
    ),
  };
}
