import { isMountPoint } from "../../host/mounts.ts";
import { CodedError, hasCode } from "../../lib/errors.ts";
import { giveDirectory, groupOf } from "../group.ts";
import { emptyDirMarker, podSubdirectory, volumeDirectory } from "../paths.ts";
import type { FileChange } from "../../seams/host.ts";
import { memoryBound, memoryDirectory, tmpfsMode } from "../tmpfs.ts";
import type { VolumeDeps, VolumeKind } from "./kind.ts";

const openToAll = 0o777;
const markerMode = 0o750;

/** A directory that lives as long as the pod, on disk or in memory. Once made it belongs to the pod: its mode is not set again.
 *  @see https://kubernetes.io/docs/concepts/storage/volumes/#emptydir */
export const emptyDir: VolumeKind = {
  refreshes: false,
  async setUp(deps, pod, volume, signal) {
    const { medium = "", sizeLimit } = volume.emptyDir ?? {};
    if (medium !== "" && medium !== "Memory")
      throw new CodedError("unimplemented", `unknown storage medium ${JSON.stringify(medium)}`);
    const { rootDir, fresh } = deps;
    const { uid } = pod.metadata;
    const path = volumeDirectory(rootDir, uid, "empty-dir", volume.name);
    const marker = emptyDirMarker(rootDir, uid, volume.name);
    const ready = { hostPath: path, readOnly: false };
    const memory = medium === "Memory";
    if (
      !fresh &&
      (await stands(deps, path, `${marker}/ready`, signal)) &&
      (!memory || (await isMountPoint(deps.host, path, signal, deps.mounts)))
    )
      return ready;
    if (memory) await memoryDirectory(deps, { uid, path }, memoryBound(deps, pod, sizeLimit), signal);
    const directory: readonly FileChange[] = [
      ...podSubdirectory(rootDir, uid, "volumes", { path, mode: openToAll }),
      { do: "chmod", path, mode: openToAll },
    ];
    await deps.host.fs.apply(
      [
        ...(memory ? [] : directory),
        ...giveDirectory(groupOf(pod), { path, mode: memory ? tmpfsMode : openToAll, writable: true }),
        ...podSubdirectory(rootDir, uid, "plugins", { path: marker, mode: markerMode }),
        { do: "write", path: `${marker}/ready`, data: "" },
      ],
      signal,
    );
    return ready;
  },
};

/** Both are there: the directory, and the file that a kubelet leaves too once it is done. */
async function stands({ host }: VolumeDeps, path: string, marker: string, signal: AbortSignal): Promise<boolean> {
  try {
    await host.fs.lstat(marker, signal);
    await host.fs.lstat(path, signal);
    return true;
  } catch (error) {
    if (hasCode(error, "not_found")) return false;
    throw error;
  }
}
