import { CodedError } from "../../src/lib/errors.ts";
import type { FileChange } from "../../src/seams/host.ts";

/** Files in memory, by path. */
export function filesOf(files: Record<string, string>) {
  return {
    async readFile(path: string) {
      const text = files[path];
      if (text === undefined) throw new CodedError("not_found", path);
      return Buffer.from(text);
    },
    async apply(changes: readonly FileChange[]) {
      for (const change of changes) {
        if (change.kind === "write") files[change.path] = String(change.data);
        else if (change.kind === "rename") {
          files[change.to] = files[change.from] ?? "";
          delete files[change.from];
        } else if (change.kind === "remove") delete files[change.path];
      }
    },
  };
}
