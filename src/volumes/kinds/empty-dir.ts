import { isMountPoint } from "../../host/mounts.ts";
import { CodedError, hasCode } from "../../lib/errors.ts";
import { emptyDirMarker, volumeDirectory } from "../paths.ts";
import { memoryBound, memoryDirectory } from "../tmpfs.ts";
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
    const path = volumeDirectory(deps.rootDir, pod.metadata.uid, "empty-dir", volume.name);
    const marker = emptyDirMarker(deps.rootDir, pod.metadata.uid, volume.name);
    const ready = { hostPath: path, readOnly: false };
    if (
      (await stands(deps, path, `${marker}/ready`, signal)) &&
      (medium === "" || (await isMountPoint(deps.host, path, signal)))
    )
      return ready;
    if (medium === "Memory") await memoryDirectory(deps, path, memoryBound(deps, pod, sizeLimit), signal);
    else
      await deps.host.fs.apply(
        [
          { do: "mkdir", path, parents: true },
          { do: "chmod", path, mode: openToAll },
        ],
        signal,
      );
    await deps.host.fs.apply(
      [
        { do: "mkdir", path: marker, mode: markerMode, parents: true },
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
