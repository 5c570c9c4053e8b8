import { posix } from "node:path";
import type { Pod } from "../objects.ts";
import type { FileChange } from "../seams/host.ts";
import { initialChanges, writeAtomically } from "./atomic-writer.ts";
import { groupDirectoryChanges, fsGroupOf, groupReadable } from "./fs-group.ts";
import { podSubdirectory } from "./paths.ts";
import type { SetUpDeps } from "./plugins/plugin.ts";
import { applyInMemory, tmpfsMode } from "./tmpfs.ts";
import { type VolumeContent, checkContentSize, contentDigest } from "./content.ts";
import { CodedError } from "../lib/errors.ts";
import { allContainers } from "../pod/containers.ts";

/** Where to write the files of a volume: a directory of the pod, which is created. */
export interface TargetDirectory {
  readonly pod: Pod;
  readonly volumeName: string;
  readonly path: string;
  readonly inMemory: boolean;
}

const mountPoint = 0o755;
const openToAll = 0o777;

/** Writes the files of a volume, readable for the pod's fsGroup. If nothing changed, the target is not accessed.
 *  @throws resource_exhausted for more than 64 MiB; the host's failures. */
export async function writeContent(
  deps: SetUpDeps,
  { pod, volumeName, path, inMemory }: TargetDirectory,
  files: VolumeContent,
  signal: AbortSignal,
): Promise<void> {
  checkContentSize(files);
  const group = fsGroupOf(pod);
  const content = groupReadable(group, files);
  const nested = nestedMountPoints(pod, volumeName);
  const digest = [contentDigest(content), ...nested].join("\n");
  if (deps.contentDigests.get(path) === digest) return;
  const changes: readonly FileChange[] = [
    ...groupDirectoryChanges(group, { path, mode: inMemory ? tmpfsMode : openToAll }),
    ...nested.flatMap((name): readonly FileChange[] => {
      const directory = { path: `${path}/${name}`, mode: mountPoint };
      return [{ kind: "mkdir", ...directory, parents: true }, ...groupDirectoryChanges(group, directory)];
    }),
    ...(deps.fresh ? initialChanges(deps.clock, path, content, group) : []),
  ];
  if (inMemory) await applyInMemory(deps, { pod, path }, changes, signal);
  else {
    const parents = podSubdirectory(deps.rootDir, pod.metadata.uid, "volumes", { path, mode: openToAll });
    await deps.host.fs.apply([...parents, ...changes], signal);
  }
  if (!deps.fresh) await writeAtomically({ ...deps, group }, path, content, signal);
  deps.contentDigests.set(path, digest);
}

/** Mount points of other volumes inside a volume, relative to it. They must exist beforehand: the runtime cannot create them in
 *  a read-only volume.
 *  @throws CodedError invalid_argument for a mount path outside the container's root. */
export function nestedMountPoints(pod: Pod, volumeName: string): readonly string[] {
  const nested = allContainers(pod).flatMap(({ container }) => {
    const mounts = (container.volumeMounts ?? []).map(({ name, mountPath }) => ({
      name,
      path: cleanMountPath(mountPath),
    }));
    const all = mounts.map(({ path }) => path);
    return mounts.filter(({ name }) => name === volumeName).flatMap(({ path }) => outermostBelow(path, all));
  });
  return [...new Set(nested)].sort();
}

/** The outermost of the paths below `root`, relative to `root`. */
function outermostBelow(root: string, paths: readonly string[]): readonly string[] {
  const prefix = root.endsWith("/") ? root : `${root}/`;
  const inside = paths.filter((path) => path.startsWith(prefix) && path !== prefix);
  const outermost = inside.filter((path) => !inside.some((other) => path.startsWith(`${other}/`)));
  return outermost.map((path) => path.slice(prefix.length));
}

function cleanMountPath(path: string): string {
  const clean = posix.normalize(path).replace(/(?<=.)\/$/, "");
  if (clean === ".." || clean.startsWith("../"))
    throw new CodedError("invalid_argument", `invalid container mount point ${clean}`);
  return clean;
}
