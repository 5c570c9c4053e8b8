import { isMountPoint, mountHugetlbfs } from "../../host/mounts.ts";
import { CodedError, hasCode } from "../../lib/errors.ts";
import type { Pod } from "../../objects.ts";
import type { FileChange } from "../../seams/host.ts";
import { groupDirectoryChanges, fsGroupOf } from "../fs-group.ts";
import { emptyDirMarker, podSubdirectory, volumeDirectory } from "../paths.ts";
import { applyInMemory, tmpfsMode } from "../tmpfs.ts";
import type { SetUpDeps, VolumeDeps, VolumePlugin } from "./plugin.ts";
import { quantityValue } from "../../pod/quantity.ts";

const openToAll = 0o777;
const markerMode = 0o750;
/** Mode of a hugetlbfs root as the kernel creates it. */
const hugetlbfsMode = 0o755;

/** A directory with the pod's lifetime: on disk, in memory, or on huge pages. Once created it belongs to the pod: its mode is
 *  not reset.
 *  @see https://kubernetes.io/docs/concepts/storage/volumes/#emptydir */
export const emptyDir: VolumePlugin = {
  refreshes: false,
  async setUp(deps, pod, volume, signal) {
    const { medium = "", sizeLimit } = volume.emptyDir ?? {};
    const { rootDir, fresh } = deps;
    const { uid } = pod.metadata;
    const path = volumeDirectory(rootDir, uid, "empty-dir", volume.name);
    const marker = emptyDirMarker(rootDir, uid, volume.name);
    const ready = { hostPath: path, readOnly: false };
    const onDisk = medium === "";
    if (
      !fresh &&
      (await isSetUp(deps, path, `${marker}/ready`, signal)) &&
      (onDisk || (await isMountPoint(deps.host, path, signal, deps.mounts)))
    )
      return ready;
    const directory: readonly FileChange[] = [
      ...podSubdirectory(rootDir, uid, "volumes", { path, mode: openToAll }),
      { kind: "chmod", path, mode: openToAll },
    ];
    const rest: readonly FileChange[] = [
      ...groupDirectoryChanges(fsGroupOf(pod), { path, mode: rootMode(medium), writable: true }),
      ...podSubdirectory(rootDir, uid, "plugins", { path: marker, mode: markerMode }),
      { kind: "write", path: `${marker}/ready`, data: "" },
    ];
    if (medium === "Memory") await applyInMemory(deps, { pod, path, sizeLimit }, rest, signal);
    else {
      if (!onDisk) await mountHugePages(deps, pod, { path, medium }, signal);
      await deps.host.fs.apply([...(onDisk ? directory : []), ...rest], signal);
    }
    return ready;
  },
};

interface HugePages {
  readonly path: string;
  readonly medium: string;
}

/** Mounts huge pages on the directory. @throws an error in the kubelet's words for an unknown medium. */
async function mountHugePages(deps: SetUpDeps, pod: Pod, { path, medium }: HugePages, signal: AbortSignal) {
  const { uid } = pod.metadata;
  if (!isHugePages(medium)) throw new CodedError("unimplemented", `unknown storage medium ${JSON.stringify(medium)}`);
  const size = pageBytes(medium, pod);
  await deps.host.fs.apply(podSubdirectory(deps.rootDir, uid, "volumes", { path, mode: openToAll }), signal);
  if (deps.fresh || !(await isMountPoint(deps.host, path, signal))) await mountHugetlbfs(deps.host, path, size, signal);
}

/** Initial mode of the root of a medium. */
function rootMode(medium: string): number {
  if (medium === "") return openToAll;
  return medium === "Memory" ? tmpfsMode : hugetlbfsMode;
}

/** True if both exist: the directory, and the ready file that a kubelet writes too. */
async function isSetUp({ host }: VolumeDeps, path: string, marker: string, signal: AbortSignal): Promise<boolean> {
  try {
    await host.fs.lstat(marker, signal);
    await host.fs.lstat(path, signal);
    return true;
  } catch (error) {
    if (hasCode(error, "not_found")) return false;
    throw error;
  }
}

const anySize = "HugePages";
const mediumPrefix = `${anySize}-`;
const resourcePrefix = "hugepages-";

/** True for an emptyDir backed by huge pages, either of an explicit size or of the size that the pod requests. */
function isHugePages(medium: string): boolean {
  return medium === anySize || medium.startsWith(mediumPrefix);
}

/** Page size of an emptyDir backed by huge pages, bytes. A medium without a size takes the size from the requests of the pod and
 *  its containers, which must agree.
 *  @throws CodedError invalid_argument, in the kubelet's words.
 *  @see https://kubernetes.io/docs/tasks/manage-hugepages/scheduling-hugepages/ */
function pageBytes(medium: string, { spec }: Pod): number {
  const hugePageNames = [spec, ...spec.containers, ...(spec.initContainers ?? [])].flatMap(({ resources }) =>
    Object.keys(resources?.requests ?? {}).filter((name) => name.startsWith(resourcePrefix)),
  );
  const sizes = new Set(hugePageNames.map((name) => quantityValue(name.slice(resourcePrefix.length))));
  if (medium === anySize && sizes.size > 1)
    throw invalidMedium(`medium: ${medium} can't be used if container requests multiple huge page sizes`);
  const [only] = sizes;
  const wanted = medium === anySize ? only : quantityValue(medium.slice(mediumPrefix.length));
  if (wanted !== undefined && sizes.has(wanted)) return wanted;
  throw invalidMedium(`medium ${medium}: hugePages storage requested, but there is no resource request for huge pages`);
}

function invalidMedium(message: string): CodedError {
  return new CodedError("invalid_argument", message);
}
