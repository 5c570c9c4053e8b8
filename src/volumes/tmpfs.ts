import { dirname } from "node:path";
import { type TmpfsOptions, isMountPoint, mountTmpfs, tmpfsOptionList } from "../host/mounts.ts";
import { hasCode } from "../lib/errors.ts";
import type { Pod } from "../objects.ts";
import type { FileChange } from "../seams/host.ts";
import { quantityValue } from "../pod/quantity.ts";
import { nodeReference } from "../pod/reference.ts";
import { isPodLimited, podLimits } from "../pod/resources.ts";
import type { SetUpDeps, VolumeDeps } from "./plugins/plugin.ts";
import { podSubdirectory } from "./paths.ts";

const openToAll = 0o777;
const onlyOwner = 0o700;

/** Mode of a tmpfs root as the kernel creates it. */
export const tmpfsMode = 0o1777;

export interface MemoryDirectory {
  readonly pod: Pod;
  readonly path: string;
  /** sizeLimit of the volume. */
  readonly sizeLimit?: string | undefined;
}

/** Mounts a tmpfs, and then applies changes in it: at once in a new directory, so that a remote target takes one round trip. If the
 *  target's user may not mount, a directory on disk is used instead, inside one of mode 0700, and an event on the node reports it. */
export async function applyInMemory(
  deps: SetUpDeps,
  directory: MemoryDirectory,
  changes: readonly FileChange[],
  signal: AbortSignal,
): Promise<void> {
  const { host, rootDir, fresh, noswap } = deps;
  const { pod, path, sizeLimit } = directory;
  const options = { ...memorySizeLimit(deps, pod, sizeLimit), noswap: await noswap(signal) };
  const parents = podSubdirectory(rootDir, pod.metadata.uid, "volumes", { path, mode: openToAll });
  if (fresh) {
    const mount: FileChange = { kind: "mountTmpfs", path, options: tmpfsOptionList(options) };
    try {
      return await host.fs.apply([...parents, mount, ...changes], signal);
    } catch (error) {
      // The mount has failed; mountMemoryDirectory repeats it and reports the reason.
      if (!hasCode(error, "failed_precondition")) throw error;
    }
  }
  await host.fs.apply(parents, signal);
  await mountMemoryDirectory(deps, path, options, signal);
  await host.fs.apply(changes, signal);
}

async function mountMemoryDirectory(
  { host, events, nodeName, mounts }: SetUpDeps,
  path: string,
  options: TmpfsOptions,
  signal: AbortSignal,
): Promise<void> {
  if (await isMountPoint(host, path, signal, mounts)) return;
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

/** Size limit of a memory-backed volume: the smallest of its own limit, the pod's memory limit if there is one for the whole pod,
 *  and the node's memory.
 *  @see https://kubernetes.io/docs/concepts/storage/volumes/#emptydir */
function memorySizeLimit({ allocatable }: Pick<VolumeDeps, "allocatable">, pod: Pod, sizeLimit?: string): TmpfsOptions {
  const podLimit = isPodLimited(pod, "memory") ? podLimits(pod, { overhead: true })["memory"] : undefined;
  const bounds = [podLimit, sizeLimit, allocatable()["memory"]]
    .map((bound) => quantityValue(bound ?? "0"))
    .filter((bound) => bound > 0);
  return bounds.length > 0 ? { sizeBytes: Math.min(...bounds) } : {};
}
