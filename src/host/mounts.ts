import { CodedError } from "../lib/errors.ts";
import type { Host } from "../seams/host.ts";

export interface Mount {
  readonly path: string;
  readonly fsType: string;
  readonly source: string;
}

/** What is mounted on the target, in the order of mounting. @see https://man7.org/linux/man-pages/man5/proc_pid_mountinfo.5.html */
export async function listMounts(host: Host, signal?: AbortSignal): Promise<readonly Mount[]> {
  const text = (await host.fs.readFile("/proc/self/mountinfo", { ...(signal && { signal }) })).toString("utf8");
  return text.split("\n").flatMap((line) => {
    const [left, right] = line.split(" - ");
    const path = left?.split(" ")[4];
    const [fsType, source] = right?.split(" ") ?? [];
    return path && fsType ? [{ path: unescape(path), fsType, source: unescape(source ?? "") }] : [];
  });
}

/** The kernel writes blanks, tabs, newlines and backslashes in octal. */
function unescape(text: string): string {
  return text.replace(/\\([0-7]{3})/g, (_, octal: string) => String.fromCharCode(Number.parseInt(octal, 8)));
}

/** Mounts at a path or below it, deepest first: the order in which to unmount them. */
export function mountsBelow(mounts: readonly Mount[], root: string): readonly string[] {
  return mounts.map(({ path }) => path).filter((path) => path === root || path.startsWith(`${root}/`)).reverse();
}

export interface TmpfsOptions {
  /** Bytes; without it the kernel's default, half of memory. */
  readonly sizeBytes?: number;
  readonly mode?: number;
}

/** Mounts a tmpfs on a directory. @throws permission_denied where the host's user may not. */
export async function mountTmpfs(host: Host, path: string, options: TmpfsOptions = {}, signal?: AbortSignal): Promise<void> {
  const flags = [options.sizeBytes === undefined ? [] : [`size=${options.sizeBytes}`], options.mode === undefined ? [] : [`mode=${options.mode.toString(8)}`]].flat();
  const argv = ["mount", "-t", "tmpfs", ...(flags.length > 0 ? ["-o", flags.join(",")] : []), "tmpfs", path];
  const { code, stderr } = await host.run(argv, { ...(signal && { signal }) });
  if (code !== 0) throw new CodedError("permission_denied", `mounting a tmpfs on ${path} failed: ${stderr.trim() || `exit code ${code}`}`);
}

/** Unmounts a path; what is not mounted is left alone. */
export async function unmount(host: Host, path: string, signal?: AbortSignal): Promise<void> {
  const { code, stderr } = await host.run(["umount", path], { ...(signal && { signal }) });
  if (code === 0) return;
  if (!(await listMounts(host, signal)).some((mount) => mount.path === path)) return;
  throw new CodedError("failed_precondition", `unmounting ${path} failed: ${stderr.trim() || `exit code ${code}`}`);
}
