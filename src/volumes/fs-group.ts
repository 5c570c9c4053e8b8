import type { Pod } from "../objects.ts";
import type { FileChange } from "../seams/host.ts";
import type { VolumeContent } from "./content.ts";

const readableByGroup = 0o440;
const writableByGroup = 0o660;
/** setgid: new files in the directory belong to the group, and the group may search it. */
const directoryOfGroup = 0o2110;

/** The pod's fsGroup.
 *  @see https://kubernetes.io/docs/tasks/configure-pod-container/security-context/#set-the-security-context-for-a-pod */
export function fsGroupOf({ spec }: Pod): number | undefined {
  return spec.securityContext?.fsGroup ?? undefined;
}

/** Makes the files of a read-only volume readable for the group. */
export function groupReadable(group: number | undefined, content: VolumeContent): VolumeContent {
  if (group === undefined) return content;
  return new Map(
    [...content].map(([path, file]) => [path, { ...file, mode: file.mode | readableByGroup, gid: group }] as const),
  );
}

/** Changes that make a new directory of `mode` belong to the group, which may read it and, if `writable`, also write it. @returns
 *  no changes without a group. */
export function groupDirectoryChanges(
  group: number | undefined,
  { path, mode, writable = false }: { readonly path: string; readonly mode: number; readonly writable?: boolean },
): readonly FileChange[] {
  if (group === undefined) return [];
  const bits = directoryOfGroup | (writable ? writableByGroup : readableByGroup);
  return [
    { kind: "chown", path, uid: 0, gid: group },
    { kind: "chmod", path, mode: mode | bits },
  ];
}
