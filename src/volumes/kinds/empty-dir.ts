import type { Pod } from "../../objects.ts";
import { quantityValue } from "../../pod/quantity.ts";
import { volumeDirectory } from "../paths.ts";
import { memoryDirectory } from "../tmpfs.ts";
import type { VolumeKind } from "./kind.ts";

const openToAll = 0o777;

/** A directory that lives as long as the pod, on disk or in memory. @see https://kubernetes.io/docs/concepts/storage/volumes/#emptydir */
export const emptyDir: VolumeKind = {
  refreshes: false,
  async setUp(deps, pod, volume, signal) {
    const path = volumeDirectory(deps.rootDir, pod.metadata.uid, "empty-dir", volume.name);
    if (volume.emptyDir?.medium === "Memory") {
      const sizeBytes = memorySize(pod, volume.emptyDir.sizeLimit, deps.allocatable()["memory"]);
      await memoryDirectory(deps, path, { mode: openToAll, ...(sizeBytes > 0 && { sizeBytes }) }, signal);
    } else {
      await deps.host.fs.apply([{ do: "mkdir", path, mode: openToAll, parents: true }], signal);
    }
    await deps.host.fs.apply([{ do: "chmod", path, mode: openToAll }], signal);
    return { hostPath: path, readOnly: false };
  },
};

/** The least of the volume's own limit, what the pod's containers may use together, and what the node has; 0 for none. */
function memorySize(pod: Pod, sizeLimit: string | undefined, allocatable: string | undefined): number {
  const limits = pod.spec.containers.map(({ resources }) => resources?.limits?.["memory"]);
  const podLimit = limits.every((limit) => limit !== undefined) ? limits.reduce((sum, limit) => sum + quantityValue(limit), 0) : 0;
  const bounds = [podLimit, quantityValue(sizeLimit ?? "0"), quantityValue(allocatable ?? "0")].filter((bound) => bound > 0);
  return bounds.length > 0 ? Math.min(...bounds) : 0;
}
