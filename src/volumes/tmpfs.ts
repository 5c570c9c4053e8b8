import { dirname } from "node:path";
import { type TmpfsOptions, isMountPoint, mountTmpfs } from "../host/mounts.ts";
import { hasCode } from "../lib/errors.ts";
import type { Pod } from "../objects.ts";
import { quantityValue } from "../pod/quantity.ts";
import { nodeReference } from "../pod/reference.ts";
import { isPodLimited, podLimits } from "../pod/resources.ts";
import type { SetUpDeps, VolumeDeps } from "./plugins/plugin.ts";
import { podSubdirectory } from "./paths.ts";

const openToAll = 0o777;
const onlyOwner = 0o700;

/** Mode of a tmpfs root as the kernel creates it. */
export const tmpfsMode = 0o1777;

/** Mounts a tmpfs. If the target's user may not mount, a directory on disk is used instead, inside one of mode 0700, and an
 *  event on the node reports it. */
export async function mountMemoryDirectory(
  { host, events, nodeName, rootDir, fresh, noswap, mounts }: SetUpDeps,
  { uid, path }: { readonly uid: string; readonly path: string },
  bound: TmpfsOptions,
  signal: AbortSignal,
): Promise<void> {
  const [options] = await Promise.all([
    noswap(signal).then((kept): TmpfsOptions => ({ ...bound, noswap: kept })),
    host.fs.apply(podSubdirectory(rootDir, uid, "volumes", { path, mode: openToAll }), signal),
  ]);
  if (!fresh && (await isMountPoint(host, path, signal, mounts))) return;
  try {
    await mountTmpfs(host, path, options, signal);
  } catch (error) {
    if (!hasCode(error, "permission_denied", "not_found")) throw error;
    await host.fs.apply([{ kind: "chmod", path: dirname(path), mode: onlyOwner }], signal);
    const message =
      "cannot mount tmpfs on the target: memory-backed volumes (secrets, tokens, emptyDirs) are stored on disk, in directories of mode 0700.";
    events.event(nodeReference(nodeName), "Warning", "PossibleMemoryBackedVolumesOnDisk", message);
  }
}

/** Size limit of a memory-backed volume: the smallest of its own limit, the pod's memory limit if all of the pod is limited, and
 *  the node's memory.
 *  @see https://kubernetes.io/docs/concepts/storage/volumes/#emptydir */
export function memorySizeLimit(
  { allocatable }: Pick<VolumeDeps, "allocatable">,
  pod: Pod,
  sizeLimit?: string,
): TmpfsOptions {
  const podLimit = isPodLimited(pod, "memory") ? podLimits(pod, { overhead: true })["memory"] : undefined;
  const bounds = [podLimit, sizeLimit, allocatable()["memory"]]
    .map((bound) => quantityValue(bound ?? "0"))
    .filter((bound) => bound > 0);
  return bounds.length > 0 ? { sizeBytes: Math.min(...bounds) } : {};
}
