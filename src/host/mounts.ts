import { coalesce } from "../lib/coalesce.ts";
import { CodedError } from "../lib/errors.ts";
import { untilAborted } from "../lib/service-group.ts";
import type { Host } from "../seams/host.ts";

export interface Mount {
  readonly path: string;
  readonly fsType: string;
  readonly source: string;
}

/** What is mounted on the target, in the order of mounting. @see https://man7.org/linux/man-pages/man5/proc_pid_mountinfo.5.html */
export async function listMounts(host: Host, signal?: AbortSignal): Promise<readonly Mount[]> {
  return parseMounts(await readProc(host, "/proc/self/mountinfo", signal));
}

/** Lists mounts once for all who ask at about the same time: a table is hundreds of lines on a full node. Nobody is told what was
 *  read before they asked. */
export type MountLister = (signal?: AbortSignal) => Promise<readonly Mount[]>;

export function createMountLister(host: Host): MountLister {
  let mounts: readonly Mount[] = [];
  const read = coalesce(async () => {
    mounts = await listMounts(host);
  });
  return async (signal) => {
    await (signal ? untilAborted(read(), signal) : read());
    return mounts;
  };
}

/** The mounts in a table of the form of /proc/self/mountinfo. */
export function parseMounts(table: string): readonly Mount[] {
  return table.split("\n").flatMap((line) => {
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
  return mounts
    .map(({ path }) => path)
    .filter((path) => path === root || path.startsWith(`${root}/`))
    .reverse();
}

/** Whether something is mounted on a directory, whatever links lead to it. @throws not_found when it is not there. */
export async function isMountPoint(
  host: Host,
  path: string,
  signal?: AbortSignal,
  list: MountLister = (stop) => listMounts(host, stop),
): Promise<boolean> {
  const [real, mounts] = await Promise.all([host.fs.realpath(path, signal), list(signal)]);
  return mounts.some((mount) => mount.path === real);
}

export interface TmpfsOptions {
  /** Bytes; without it the kernel's default, half of memory. */
  readonly sizeBytes?: number;
  /** Whether the kernel can keep it out of swap; asked where it is not given. */
  readonly noswap?: boolean;
}

/** Mounts a tmpfs on a directory, kept out of swap where the kernel can.
 *  @throws permission_denied where the host's user may not mount, failed_precondition when mounting fails otherwise.
 *  @see https://kubernetes.io/docs/concepts/cluster-administration/swap-memory-management/#memory-backed-volumes */
export async function mountTmpfs(
  host: Host,
  path: string,
  { sizeBytes, noswap }: TmpfsOptions = {},
  signal?: AbortSignal,
): Promise<void> {
  const size = sizeBytes === undefined ? [] : [`size=${sizeBytes}`];
  const mount = (options: readonly string[]) =>
    host.run(["mount", "-t", "tmpfs", ...(options.length > 0 ? ["-o", options.join(",")] : []), "tmpfs", path], {
      ...(signal && { signal }),
    });
  // In a user namespace the option is refused although the kernel knows it: then without.
  if ((noswap ?? (await kernelHasNoswap(host, signal))) && (await mount([...size, "noswap"])).code === 0) return;
  const { code, stderr } = await mount(size);
  if (code === 0) return;
  const why = (await mayMount(host, signal)) ? "failed_precondition" : "permission_denied";
  throw new CodedError(why, `mounting a tmpfs on ${path} failed: ${stderr.trim() || `exit code ${code}`}`);
}

/** tmpfs can stay out of swap since Linux 6.4. */
export async function kernelHasNoswap(host: Host, signal?: AbortSignal): Promise<boolean> {
  const release = await readProc(host, "/proc/sys/kernel/osrelease", signal);
  const [major = 0, minor = 0] = release.split(".").map((part) => Number.parseInt(part, 10));
  return major > 6 || (major === 6 && minor >= 4);
}

/** Whether the user that commands run as holds CAP_SYS_ADMIN. */
async function mayMount(host: Host, signal?: AbortSignal): Promise<boolean> {
  const capabilities = /^CapEff:\s*([0-9a-f]+)$/m.exec(await readProc(host, "/proc/self/status", signal))?.[1] ?? "0";
  return ((BigInt(`0x${capabilities}`) >> 21n) & 1n) === 1n;
}

async function readProc(host: Host, path: string, signal?: AbortSignal): Promise<string> {
  return (await host.fs.readFile(path, { ...(signal && { signal }) })).toString("utf8");
}

/** Unmounts a path; what is not mounted is left alone. */
export async function unmount(host: Host, path: string, signal?: AbortSignal): Promise<void> {
  const { code, stderr } = await host.run(["umount", path], { ...(signal && { signal }) });
  if (code === 0) return;
  if (!(await listMounts(host, signal)).some((mount) => mount.path === path)) return;
  throw new CodedError("failed_precondition", `unmounting ${path} failed: ${stderr.trim() || `exit code ${code}`}`);
}
