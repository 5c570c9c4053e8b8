import { messageOf } from "../../lib/errors.ts";
import type { PersistentVolume, PersistentVolumeClaim, Pod, Volume } from "../../objects.ts";
import { UnprocessedVolumeError } from "../failure.ts";
import { namesIn } from "../paths.ts";
import type { Claims } from "../ports.ts";
import { migratedVolume } from "./migration.ts";
import { claimNameOf } from "../../pod/migrated-volume.ts";

/** A claim that is being deleted may still be used while it has this finalizer. */
const protectionFinalizer = "kubernetes.io/pvc-protection";

/** The volume that a pod's claim is bound to. */
export type BoundVolume = Awaited<ReturnType<typeof boundVolume>>;

/** Finds the volume that a pod's claim, or the claim of its generic ephemeral volume, is bound to.
 *  @throws UnprocessedVolumeError in the kubelet's words.
 *  @see https://kubernetes.io/docs/concepts/storage/persistent-volumes/#binding */
export async function boundVolume(claims: Claims, pod: Pod, volume: Volume, signal: AbortSignal) {
  const { namespace } = pod.metadata;
  const name = claimNameOf(pod, volume) ?? "";
  const processed = <T>(step: Promise<T>): Promise<T> =>
    step.catch((error: unknown) => {
      if (signal.aborted) throw error;
      throw new UnprocessedVolumeError(`error processing PVC ${namespace}/${name}: ${messageOf(error)}`, error);
    });
  const claim = await processed(usableClaim(claims, namespace, name, signal));
  if (!volume.persistentVolumeClaim) checkClaimOwner(pod, claim);
  const found = migratedVolume(await processed(volumeOf(claims, claim, signal)));
  const mode = found.spec?.volumeMode;
  if (mode === undefined) throw new UnprocessedVolumeError(`cannot get volumeMode for volume: ${found.metadata.name}`);
  for (const [use, fits] of [
    ["volumeMounts", "Filesystem"],
    ["volumeDevices", "Block"],
  ] as const)
    if (mode !== fits && namesIn(pod, use).has(volume.name))
      throw new UnprocessedVolumeError(`volume ${volume.name} has volumeMode ${mode}, but is specified in ${use}`);
  /** The pod requests it read-only. */
  const readOnly = volume.persistentVolumeClaim?.readOnly === true;
  // Containers use the device itself, not files on it.
  return { claim, volume: found, readOnly, isDevice: mode === "Block" };
}

async function usableClaim(
  claims: Claims,
  namespace: string,
  name: string,
  signal: AbortSignal,
): Promise<PersistentVolumeClaim> {
  const claim = await claims.claim(namespace, name, signal).catch((error: unknown) => {
    throw new UnprocessedVolumeError(`failed to fetch PVC from API server: ${messageOf(error)}`, error);
  });
  const { deletionTimestamp, finalizers = [] } = claim.metadata;
  if (deletionTimestamp !== undefined && !finalizers.includes(protectionFinalizer))
    throw new UnprocessedVolumeError("PVC is being deleted");
  if (claim.status?.phase !== "Bound") throw new UnprocessedVolumeError("PVC is not bound");
  if (!claim.spec?.volumeName) throw new UnprocessedVolumeError("PVC has empty pvc.Spec.VolumeName");
  return claim;
}

/** Rejects a claim that has the name of the pod's generic ephemeral volume but another owner.
 *  @see https://kubernetes.io/docs/concepts/storage/ephemeral-volumes/#persistentvolumeclaim-naming */
function checkClaimOwner(pod: Pod, { metadata }: PersistentVolumeClaim): void {
  const owner = metadata.ownerReferences?.find(({ controller }) => controller === true);
  if (owner?.uid === pod.metadata.uid) return;
  const where = `${pod.metadata.namespace}/${pod.metadata.name}`;
  throw new UnprocessedVolumeError(
    `PVC ${metadata.namespace}/${metadata.name} was not created for pod ${where} (pod is not owner)`,
  );
}

async function volumeOf(
  claims: Claims,
  { metadata, spec }: PersistentVolumeClaim,
  signal: AbortSignal,
): Promise<PersistentVolume> {
  const name = spec?.volumeName ?? "";
  const found = await claims.persistentVolume(name, signal).catch((error: unknown) => {
    throw new UnprocessedVolumeError(`failed to fetch PV ${name} from API server: ${messageOf(error)}`, error);
  });
  const reference = found.spec?.claimRef;
  if (!reference)
    throw new UnprocessedVolumeError(
      `found PV object ${name} but it has a nil pv.Spec.ClaimRef indicating it is not yet bound to the claim`,
    );
  if (reference.uid !== metadata.uid)
    throw new UnprocessedVolumeError(
      `found PV object ${name} but its pv.Spec.ClaimRef.UID ${reference.uid ?? ""} does not point to claim.UID ${metadata.uid}`,
    );
  return found;
}
