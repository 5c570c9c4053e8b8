import { posix } from "node:path";
import { CodedError } from "../lib/errors.ts";
import type { Pod } from "../objects.ts";
import { allContainers } from "../pod/containers.ts";

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
