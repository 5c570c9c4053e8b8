import { CodedError, hasCode, ignoreNotFound } from "../../lib/errors.ts";
import type { FileChange, FileKind } from "../../seams/host.ts";
import type { VolumePlugin } from "./plugin.ts";

/** File kinds that each type of hostPath expects, in the kubelet's words. */
const expectedKinds: Readonly<Record<string, readonly [FileKind, string]>> = {
  DirectoryOrCreate: ["directory", "directory"],
  Directory: ["directory", "directory"],
  FileOrCreate: ["file", "file"],
  File: ["file", "file"],
  Socket: ["socket", "socket file"],
  CharDevice: ["characterDevice", "character device"],
  BlockDevice: ["blockDevice", "block device"],
};

/** A file or directory of the target. @see https://kubernetes.io/docs/concepts/storage/volumes/#hostpath */
export const hostPath: VolumePlugin = {
  refreshes: false,
  async setUp({ host }, _pod, volume, signal) {
    const path = volume.hostPath?.path ?? "";
    const type = volume.hostPath?.type ?? "";
    if (path.split("/").includes(".."))
      throw new CodedError("invalid_argument", `invalid HostPath \`${path}\`: must not contain '..'`);
    if (type === "") return { hostPath: path, readOnly: false };
    const want = expectedKinds[type];
    if (!want) throw new CodedError("invalid_argument", `${type} is an invalid volume type`);
    const kindAt = async () => (await ignoreNotFound(host.fs.stat(path, signal)))?.kind;
    let kind = await kindAt();
    if (kind === undefined && type.endsWith("OrCreate")) {
      await host.fs.apply([creation(type, path)], signal).catch((error: unknown) => {
        // It was created by another process meanwhile, or is a dangling link: check what it is now.
        if (!hasCode(error, "already_exists")) throw error;
      });
      kind = await kindAt();
    }
    if (kind !== want[0])
      throw new CodedError("failed_precondition", `hostPath type check failed: ${path} is not a ${want[1]}`);
    return { hostPath: path, readOnly: false };
  },
};

/** Creates the file or directory. The parents of a file must exist; those of a directory are created. Links at the path are not
 *  followed, and existing files and directories keep their content and mode. */
function creation(type: string, path: string): FileChange {
  return type === "FileOrCreate" ? { kind: "create", path } : { kind: "mkdir", path, mode: 0o755, parents: true };
}
