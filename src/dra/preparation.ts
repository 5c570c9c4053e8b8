import type { NodePrepareResourcesResponse, NodeUnprepareResourcesResponse } from "../gen/dra.ts";
import { messageOf, throwIfAborted } from "../lib/errors.ts";
import type { Pod, ResourceClaim } from "../objects.ts";
import { type PodClaim, checkUse, claimsOf } from "./claim-names.ts";
import type { ClaimRecord, ClaimRecords } from "./claim-records.ts";
import type { DraDriverClient } from "./driver-client.ts";

export interface PreparationDeps {
  readonly records: ClaimRecords;
  /** Reads a claim from the API server. */
  readonly claim: (namespace: string, name: string, signal: AbortSignal) => Promise<ResourceClaim>;
  /** @throws in the kubelet's words if the driver is not registered. */
  readonly driver: (name: string) => DraDriverClient;
  /** Saves the records. @param failure beginning of the error. @throws Error in the kubelet's words. */
  readonly save: (failure?: string) => Promise<void>;
}

/** Has drivers prepare a pod's claims. Nothing is recorded before every claim has been checked, so that a pod whose driver was never
 *  installed can be deleted without the driver. @throws in the kubelet's words. (kubelet, cm/dra/manager.go) */
export async function prepareClaims(deps: PreparationDeps, pod: Pod, signal: AbortSignal): Promise<void> {
  const { records, save } = deps;
  const claims: ResourceClaim[] = [];
  for (const podClaim of claimsOf(pod)) claims.push(await usableClaim(deps, pod, podClaim, signal));
  if (claims.length === 0) return;
  const recorded = claims.map((claim) => recordUse(records, pod, claim));
  const unprepared = recorded.filter((record) => !records.isPrepared(record));
  await save("checkpoint ResourceClaim cache");
  for (const [name, batch] of batchesOf(unprepared)) {
    const call = deps.driver(name).prepare(batch.map(requestOf), signal);
    const { claims: results } = await explain(call, "NodePrepareResources", signal);
    checkResults("NodePrepareResources", batch, results);
    for (const record of batch) records.setDevices(record, name, devicesOf(results, record));
  }
  for (const record of unprepared) records.setPrepared(record);
  await save();
}

/** Has drivers release a pod's claims, except those that other pods still use. Does nothing for a pod without recorded claims.
 *  @throws in the kubelet's words; the records are then unchanged. */
export async function unprepareClaims(
  { records, driver, save }: PreparationDeps,
  uid: string,
  signal: AbortSignal,
): Promise<void> {
  const claims = records.ofPod(uid);
  if (claims.length === 0) return;
  const [shared, own] = [claims.filter(({ pods }) => pods.size > 1), claims.filter(({ pods }) => pods.size === 1)];
  for (const [name, batch] of batchesOf(own)) {
    const call = driver(name).unprepare(batch.map(requestOf), signal);
    const { claims: results } = await explain(call, "NodeUnprepareResources", signal);
    checkResults("NodeUnprepareResources", batch, results);
  }
  for (const record of shared) records.removePod(record, uid);
  for (const record of own) records.remove(record);
  await save();
}

/** Reads a claim, and checks that the pod may use it and that its drivers are registered. */
async function usableClaim(
  deps: PreparationDeps,
  pod: Pod,
  podClaim: PodClaim,
  signal: AbortSignal,
): Promise<ResourceClaim> {
  const { name } = podClaim;
  const claim = await explain(deps.claim(pod.metadata.namespace, name, signal), `fetch ResourceClaim ${name}`, signal);
  checkUse(pod, podClaim, claim);
  if (!claim.status?.allocation) throw new Error(`ResourceClaim ${name}: not allocated`);
  for (const driver of driversOf(claim)) deps.driver(driver);
  return claim;
}

function recordUse(records: ClaimRecords, pod: Pod, claim: ResourceClaim): ClaimRecord {
  const { uid, name, namespace } = claim.metadata;
  const known = records.get(namespace, name);
  if (known && known.uid !== uid)
    throw new Error(
      `old ResourceClaim with same name ${name} and different UID ${known.uid} still exists (previous pod force-deleted?!)`,
    );
  return records.addPod({ uid, name, namespace }, driversOf(claim), pod.metadata.uid);
}

/** Drivers of a claim's allocated devices. */
function driversOf({ status }: ResourceClaim): readonly string[] {
  return [...new Set(status?.allocation?.devices?.results?.map(({ driver }) => driver))];
}

/** Claims by driver: each driver gets one call. */
function batchesOf(records: readonly ClaimRecord[]): ReadonlyMap<string, readonly ClaimRecord[]> {
  const drivers = new Set(records.flatMap((record) => [...record.drivers.keys()]));
  return new Map([...drivers].map((name) => [name, records.filter((record) => record.drivers.has(name))]));
}

const requestOf = ({ namespace, uid, name }: ClaimRecord) => ({ namespace, uid, name });

/** Checks that a driver has responded for each claim, and for no others. */
function checkResults(
  call: string,
  batch: readonly ClaimRecord[],
  results: (NodePrepareResourcesResponse | NodeUnprepareResourcesResponse)["claims"],
): void {
  for (const [uid, { error }] of Object.entries(results)) {
    const record = batch.find((claim) => claim.uid === uid);
    if (!record) throw new Error(`${call} returned result for unknown claim UID ${uid}`);
    if (error !== "") throw new Error(`${call} failed for ResourceClaim ${record.name}: ${error}`);
  }
  const skipped = batch.filter(({ uid }) => !Object.hasOwn(results, uid)).length;
  if (skipped > 0) throw new Error(`${call} skipped ${skipped} ResourceClaims`);
}

function devicesOf(results: NodePrepareResourcesResponse["claims"], { uid }: ClaimRecord) {
  return (results[uid]?.devices ?? []).map(({ poolName, deviceName, shareId, requestNames, cdiDeviceIds }) => ({
    poolName,
    deviceName,
    ...(shareId !== undefined && { shareId }),
    requestNames,
    cdiDeviceIds,
  }));
}

async function explain<T>(work: Promise<T>, what: string, signal: AbortSignal): Promise<T> {
  try {
    return await work;
  } catch (error) {
    throwIfAborted(signal);
    throw new Error(`${what}: ${messageOf(error)}`, { cause: error });
  }
}
