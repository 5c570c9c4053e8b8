import type { Pod } from "../objects.ts";
import type { FileChange } from "../seams/host.ts";
import type { Payload } from "./payload.ts";

const readableByGroup = 0o440;
const writableByGroup = 0o660;
/** setgid: new files in the directory belong to the group, and the group may search it. */
const directoryOfGroup = 0o2110;

/** The pod's fsGroup.
 *  @see https://kubernetes.io/docs/tasks/configure-pod-container/security-context/#set-the-security-context-for-a-pod */
export function groupOf({ spec }: Pod): number | undefined {
  return spec.securityContext?.fsGroup ?? undefined;
}

/** Makes the files of a read-only volume readable for the group. */
export function readableBy(group: number | undefined, payload: Payload): Payload {
  if (group === undefined) return payload;
  return new Map(
    [...payload].map(([path, file]) => [path, { ...file, mode: file.mode | readableByGroup, gid: group }] as const),
  );
}

/** Changes that give a new directory of `mode` to the group, readable or also writable. @returns no changes without a group. */
export function giveDirectory(
  group: number | undefined,
  { path, mode, writable = false }: { readonly path: string; readonly mode: number; readonly writable?: boolean },
): readonly FileChange[] {
  if (group === undefined) return [];
  const bits = directoryOfGroup | (writable ? writableByGroup : readableByGroup);
  return [
    { do: "chown", path, uid: 0, gid: group },
    { do: "chmod", path, mode: mode | bits },
  ];
}
