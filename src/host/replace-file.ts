import { hasCode } from "../lib/errors.ts";
import type { FileChange, HostFs } from "../seams/host.ts";

/** Changes that replace a file atomically: readers see the old or the new content, also after a crash.
 *  @param mode of the new file; by default the host's. */
export function replaceFile(path: string, data: string, mode?: number): readonly FileChange[] {
  const temporary = `${path}.new`;
  return [
    { kind: "write", path: temporary, data, ...(mode !== undefined && { mode }) },
    { kind: "rename", from: temporary, to: path },
  ];
}

/** Reads the text of a state file. @returns undefined if the file is missing; an empty text if it is unreadable, or larger than
 *  `maxBytes`. @throws if the target cannot be read. */
export async function readStateFile(
  fs: Pick<HostFs, "readFile">,
  path: string,
  maxBytes: number,
  signal: AbortSignal,
): Promise<string | undefined> {
  try {
    return (await fs.readFile(path, { maxBytes, signal })).toString("utf8");
  } catch (error) {
    if (hasCode(error, "not_found")) return undefined;
    if (hasCode(error, "failed_precondition", "resource_exhausted", "permission_denied")) return "";
    throw error;
  }
}
