import type { FileChange } from "../seams/host.ts";

/** Changes that replace a file in one step: who reads it, after a crash too, finds what it had or all of what it has now.
 *  @param mode of the new file; undefined leaves it to the host. */
export function replaceFile(path: string, data: string, mode?: number): readonly FileChange[] {
  const beside = `${path}.new`;
  return [
    { do: "write", path: beside, data, ...(mode !== undefined && { mode }) },
    { do: "rename", from: beside, to: path },
  ];
}
