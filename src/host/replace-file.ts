import type { FileChange } from "../seams/host.ts";

/** Changes that replace a file atomically: readers see the old or the new content, also after a crash.
 *  @param mode of the new file; by default the host's. */
export function replaceFile(path: string, data: string, mode?: number): readonly FileChange[] {
  const temporary = `${path}.new`;
  return [
    { kind: "write", path: temporary, data, ...(mode !== undefined && { mode }) },
    { kind: "rename", from: temporary, to: path },
  ];
}
