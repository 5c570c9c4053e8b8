import { type TmpfsOptions, listMounts, mountTmpfs } from "../host/mounts.ts";
import { hasCode } from "../lib/errors.ts";
import { nodeReference } from "../pod/reference.ts";
import type { VolumeDeps } from "./kinds/kind.ts";

/** A directory in memory. Where the target's user may not mount one, a directory 0700 on disk takes its place, and an event on
 *  the node says so. */
export async function memoryDirectory({ host, events, nodeName }: VolumeDeps, path: string, options: TmpfsOptions, signal: AbortSignal): Promise<void> {
  await host.fs.apply([{ do: "mkdir", path, mode: 0o700, parents: true }], signal);
  if ((await listMounts(host, signal)).some((mount) => mount.path === path)) return;
  try {
    await mountTmpfs(host, path, options, signal);
  } catch (error) {
    if (!hasCode(error, "permission_denied", "not_found")) throw error;
    const message = "tmpfs cannot be mounted on the target: memory-backed volumes (secrets, tokens, emptyDirs) lie on disk, in directories of mode 0700.";
    events.event(nodeReference(nodeName), "Warning", "PossibleMemoryBackedVolumesOnDisk", message);
  }
}
