import { NodeExpandVolumeRequest, NodeServiceCapability_RPC_Type as Capability } from "../../gen/csi.ts";
import { CodedError, codeOf, hasCode, messageOf } from "../../lib/errors.ts";
import type { VolumeDeps } from "../plugins/plugin.ts";
import { volumeCapabilityOf, readSecrets } from "./csi-publish.ts";
import type { VolumeUse } from "./plugin.ts";
import { blockVolumePaths, publishedPath, stagedPath } from "./csi-volume-data.ts";
import type { PersistentVolume } from "../../objects.ts";

/** Has a CSI driver expand a volume that is published to a pod. If the driver is not registered, the expansion is retried; if it
 *  does not support expansion, that is not a failure.
 *  @param bytes the new size. @throws ExpandError, or a CodedError for failures that are worth a retry, in the kubelet's words.
 *  @see https://github.com/container-storage-interface/spec/blob/master/spec.md#nodeexpandvolume */
export async function expandCsiVolume(
  deps: VolumeDeps,
  use: VolumeUse,
  bytes: bigint,
  signal: AbortSignal,
): Promise<void> {
  const source = csiSourceOf(use.volume);
  const driver = registeredDriver(deps, source.driver);
  const capabilities = await driver.capabilities().catch((error: unknown) => {
    const what = "Expander.NodeExpand failed to check if node supports expansion : ";
    throw new CodedError(codeOf(error), `${what}${messageOf(error)}`, { cause: error });
  });
  if (!capabilities.has(Capability.EXPAND_VOLUME))
    throw new ExpandError("unsupported", `NodeExpand is not supported by the CSI driver ${source.driver}`);
  const { mountOptions = [], accessModes = [], volumeMode } = use.volume.spec ?? {};
  const describeError = (secret: string, why: string) =>
    `expander.NodeExpand failed to get NodeExpandSecretRef ${secret}: ${why}`;
  const secrets = await readSecrets(deps, describeError, source.nodeExpandSecretRef, signal);
  const { fsType = "" } = source;
  const isBlock = volumeMode === "Block";
  const capability = volumeCapabilityOf({ accessModes, fsType, mountFlags: mountOptions, isBlock }, capabilities);
  const request = NodeExpandVolumeRequest.create({
    volumeId: source.volumeHandle,
    ...pathsOf(deps, use),
    capacityRange: { requiredBytes: bytes, limitBytes: 0n },
    volumeCapability: capability,
    secrets,
  });
  await driver.expand(request).catch((error: unknown) => {
    throw expandFailure(error);
  });
}

function registeredDriver({ drivers }: Pick<VolumeDeps, "drivers">, name: string) {
  try {
    return drivers.driver(name);
  } catch (error) {
    throw new ExpandError("away", messageOf(error), error);
  }
}

/** Staging path and target path of the volume. */
function pathsOf({ rootDir }: Pick<VolumeDeps, "rootDir">, { pod, volume }: VolumeUse) {
  const { uid } = pod.metadata;
  const { name } = volume.metadata;
  if (volume.spec?.volumeMode === "Block") {
    const { staged, published } = blockVolumePaths(rootDir, name);
    return { volumePath: `${published}/${uid}`, stagingTargetPath: staged };
  }
  const { driver, volumeHandle } = csiSourceOf(volume);
  return {
    volumePath: publishedPath(rootDir, uid, name),
    stagingTargetPath: stagedPath(rootDir, driver, volumeHandle),
  };
}

/** Classifies the driver's error: refused while the volume is in use, permanent, or worth a retry. */
function expandFailure(error: unknown): CodedError {
  const why = messageOf(error);
  if (hasCode(error, "failed_precondition"))
    return new ExpandError("inUse", `Expander.NodeExpand failed to expand the volume : ${why}`, error);
  if (hasCode(error, "invalid_argument", "not_found"))
    return new ExpandError("infeasible", `Expander.NodeExpand failed to expand the volume ${why}`, error);
  return new CodedError(codeOf(error), `Expander.NodeExpand failed to expand the volume : ${why}`, { cause: error });
}

/** Why a volume cannot be expanded: the driver is not registered, does not support it, refuses while the volume is in use, or
 *  refuses that size for good. */
type ExpandRefusal = "away" | "unsupported" | "inUse" | "infeasible";

/** An expansion failure with a lasting reason. */
class ExpandError extends CodedError {
  readonly refusal: ExpandRefusal;
  constructor(refusal: ExpandRefusal, message: string, why?: unknown) {
    super(why === undefined ? "failed_precondition" : codeOf(why), message, { cause: why });
    this.name = "ExpandError";
    this.refusal = refusal;
  }
}

/** True if the error has one of the given reasons. */
export function hasRefusal(error: unknown, ...refusals: readonly ExpandRefusal[]): boolean {
  return error instanceof ExpandError && refusals.includes(error.refusal);
}

export type CsiSource = NonNullable<NonNullable<PersistentVolume["spec"]>["csi"]>;

/** The CSI source of a PersistentVolume. @throws failed_precondition if it has none. */
export function csiSourceOf({ metadata, spec }: PersistentVolume): CsiSource {
  if (spec?.csi) return spec.csi;
  throw new CodedError("failed_precondition", `volume source not found in volume.Spec of ${metadata.name}`);
}
