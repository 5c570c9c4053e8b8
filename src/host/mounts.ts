import { basename, dirname, join } from "node:path/posix";
import { boundedLines } from "../lib/bounded-text.ts";
import { coalesce } from "../lib/coalesce.ts";
import { CodedError, ignoreCode, ignoreNotFound } from "../lib/errors.ts";
import { untilAborted } from "../lib/runnables.ts";
import type { TargetBudget } from "../lib/target-budget.ts";
import type { Host } from "../seams/host.ts";
import { type Argv, type Option, command, commandWithoutDashes } from "../seams/command.ts";

/** Source and mount point of a mount. */
export interface MountSource {
  /** `major:minor` of its file system. */
  readonly device: string;
  /** Path within the file system mounted at `path`. */
  readonly root: string;
  readonly path: string;
}

export interface Mount extends MountSource {
  /** True for shared propagation: mounts in it propagate to its peers, such as a container's mounts. */
  readonly shared: boolean;
  readonly fsType: string;
  readonly source: string;
  /** True if its files have SELinux labels. */
  readonly labels?: true;
  /** The SELinux label that all of its files have. */
  readonly context?: string;
}

/** The target's mounts, in the order of mounting. @see https://man7.org/linux/man-pages/man5/proc_pid_mountinfo.5.html */
export async function listMounts(host: Host, signal?: AbortSignal): Promise<readonly Mount[]> {
  return parseMounts(await readProc(host, "/proc/self/mountinfo", signal), host.budget);
}

/** Lists mounts once for all concurrent callers, since the table has hundreds of lines on a full node. A caller never gets a
 *  list read before its call. */
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

/** Parses a table in the format of /proc/self/mountinfo. @throws as `boundedLines` does. */
export function parseMounts(table: string, budget?: TargetBudget): readonly Mount[] {
  return boundedLines(table, budget).flatMap((line) => {
    const [left, right] = line.split(" - ");
    const [, , device = "", root = "", path, own = "", ...optional] = left?.split(" ") ?? [];
    const [fsType, source = "", common = ""] = right?.split(" ") ?? [];
    if (!path || !fsType) return [];
    const shared = optional.some((field) => field.startsWith("shared:"));
    // `seclabel` is among the mount options or the super options.
    const labels = [own, common].some((options) => options.split(",").includes("seclabel"));
    const context = /(?:^|,)context=(?:"([^"]*)"|([^",]*))/.exec(common)?.slice(1).find(Boolean);
    const shown = { path: unescape(path), device, root: unescape(root), source: unescape(source) };
    return [{ ...shown, shared, fsType, ...(labels && { labels }), ...(context && { context }) }];
  });
}

/** Parses the third to fifth columns of /proc/self/mountinfo. */
export function parseMountSources(columns: string): readonly MountSource[] {
  return boundedLines(columns).flatMap((line) => {
    const [device, root, path] = line.split(" ");
    return device && root && path ? [{ device, root: unescape(root), path: unescape(path) }] : [];
  });
}

/** The kernel writes spaces, tabs, newlines and backslashes in octal. */
function unescape(text: string): string {
  return text.replace(/\\([0-7]{3})/g, (_, octal: string) => String.fromCharCode(Number.parseInt(octal, 8)));
}

/** The mount that contains a path; the last of several at one mount point. @param path without symlinks. */
function containingMount<M extends MountSource>(mounts: readonly M[], path: string): M | undefined {
  return mounts
    .filter((mount) => isAtOrBelow(path, mount.path))
    .reduce<M | undefined>((best, one) => (best && best.path.length > one.path.length ? best : one), undefined);
}

/** The mount that contains a path, or will once it is created; undefined if the target does not show its mounts. Symlinks are followed.
 *  @param path absolute. */
export async function mountOf(host: Host, path: string, signal: AbortSignal): Promise<Mount | undefined> {
  const existing = async (at: string): Promise<string> => {
    const real = await ignoreNotFound(host.fs.realpath(at, signal));
    return real ?? (at === "/" ? at : existing(dirname(at)));
  };
  const [real, mounts] = await Promise.all([existing(path), ignoreNotFound(listMounts(host, signal))]);
  return mounts && containingMount(mounts, real);
}

/** File systems in memory: `rootfs` is the root of a system that runs from its initramfs. */
const inMemory = ["tmpfs", "ramfs", "rootfs"];

/** True for a file system in memory, which is lost when the machine restarts. Pure. */
export function isInMemory({ fsType }: Pick<Mount, "fsType">): boolean {
  return inMemory.includes(fsType);
}

/** True for a path and everything below it. Pure. */
export function isAtOrBelow(path: string, root: string): boolean {
  return path === root || path.startsWith(root === "/" ? "/" : `${root}/`);
}

/** The location of a path within its file system, independent of the mount point; undefined if no mount contains it. Pure.
 *  @param path without symlinks. */
export function locationInFileSystem(
  mounts: readonly MountSource[],
  path: string,
): Omit<MountSource, "path"> | undefined {
  const holder = containingMount(mounts, path);
  if (!holder) return undefined;
  const rest = path === holder.path ? "" : path.slice(holder.path === "/" ? 0 : holder.path.length);
  return { device: holder.device, root: `${holder.root === "/" ? "" : holder.root}${rest}` || "/" };
}

/** Mounts at a path or below it, deepest first: the order in which to unmount them. */
export function mountsBelow(mounts: readonly Mount[], root: string): readonly string[] {
  return mounts
    .map(({ path }) => path)
    .filter((path) => path === root || path.startsWith(`${root}/`))
    .reverse();
}

/** True for a mount point, following symlinks. @throws not_found if it does not exist. */
export async function isMountPoint(
  host: Host,
  path: string,
  signal?: AbortSignal,
  list: MountLister = (stop) => listMounts(host, stop),
): Promise<boolean> {
  const [real, mounts] = await Promise.all([host.fs.realpath(path, signal), list(signal)]);
  return mounts.some((mount) => mount.path === real);
}

/** True if the mount that contains a path supports SELinux labels. The path itself is not accessed: its server may be gone.
 *  @param path its directory must exist. */
export async function supportsSelinuxLabels(host: Host, path: string, signal: AbortSignal): Promise<boolean> {
  const [directory, mounts] = await Promise.all([host.fs.realpath(dirname(path), signal), listMounts(host, signal)]);
  return containingMount(mounts, join(directory, basename(path)))?.labels === true;
}

/** The SELinux label with which a path is mounted: empty without a label, undefined if the path is not a mount point or does not
 *  exist. */
export async function mountedContext(
  host: Host,
  path: string,
  signal: AbortSignal,
  list: MountLister = (stop) => listMounts(host, stop),
): Promise<string | undefined> {
  const [real, mounts] = await Promise.all([ignoreNotFound(host.fs.realpath(path, signal)), list(signal)]);
  const mount = mounts.findLast((one) => one.path === real);
  return mount && (mount.context ?? "");
}

/** Makes mounts below a directory propagate to mounts made from it, and back from shared ones. An already shared mount is
 *  unchanged; otherwise the directory becomes a bind mount, which is removed together with the directory. @throws
 *  failed_precondition if mounting fails.
 *  @see https://docs.kernel.org/filesystems/sharedsubtree.html */
export async function shareDirectory(host: Host, path: string, signal: AbortSignal): Promise<void> {
  const [real, mounts] = await Promise.all([host.fs.realpath(path, signal), listMounts(host, signal)]);
  const holder = containingMount(mounts, real);
  if (holder?.shared) return;
  const binds = holder?.path === real ? [] : [commandWithoutDashes("mount", ["--bind"], [real, real])];
  const steps = [...binds, commandWithoutDashes("mount", ["--make-shared"], [real])];
  for (const step of steps) {
    const { code, stderr } = await host.run(step, { signal });
    if (code !== 0)
      throw new CodedError("failed_precondition", `sharing ${path} failed: ${stderr.trim() || `exit code ${code}`}`);
  }
}

export interface TmpfsOptions {
  /** Bytes; the kernel's default is half of the memory. */
  readonly sizeBytes?: number;
  /** True if the kernel supports noswap; detected if absent. */
  readonly noswap?: boolean;
}

/** Mounts a tmpfs on a directory, with noswap if the kernel supports it. @throws permission_denied if the host's user may not
 *  mount, failed_precondition if mounting fails otherwise.
 *  @see https://kubernetes.io/docs/concepts/cluster-administration/swap-memory-management/#memory-backed-volumes */
export async function mountTmpfs(
  host: Host,
  path: string,
  { noswap, ...size }: TmpfsOptions = {},
  signal?: AbortSignal,
): Promise<void> {
  const mount = (options: TmpfsOptions) =>
    host.run(mountTmpfsCommand(path, tmpfsOptionList(options)), { ...(signal && { signal }) });
  // In a user namespace the option is rejected although the kernel supports it: mount without it.
  const withNoswap = noswap ?? (await kernelHasNoswap(host, signal));
  if (withNoswap && (await mount({ ...size, noswap: true })).code === 0) return;
  const { code, stderr } = await mount(size);
  if (code === 0) return;
  const why = (await mayMount(host, signal)) ? "failed_precondition" : "permission_denied";
  throw new CodedError(why, `mounting a tmpfs on ${path} failed: ${stderr.trim() || `exit code ${code}`}`);
}

/** The options of a tmpfs as mount(8) takes them: separated by commas; empty if there are none. */
export function tmpfsOptionList({ sizeBytes, noswap = false }: TmpfsOptions): string {
  return [...(sizeBytes === undefined ? [] : [`size=${sizeBytes}`]), ...(noswap ? ["noswap"] : [])].join(",");
}

/** @param options separated by commas; may be empty. */
export function mountTmpfsCommand(path: string, options: string): Argv {
  return commandWithoutDashes("mount", [["-t", "tmpfs"], ...optionList(options)], ["tmpfs", path]);
}

/** Mount options as arguments of `mount`. */
function optionList(options: string): readonly Option[] {
  return options === "" ? [] : [["-o", options]];
}

/** Mounts a hugetlbfs on a directory. @param pageBytes page size. @throws failed_precondition if mounting fails. @see
 *  https://docs.kernel.org/admin-guide/mm/hugetlbpage.html */
export async function mountHugetlbfs(host: Host, path: string, pageBytes: number, signal: AbortSignal): Promise<void> {
  const size = `pagesize=${pageBytes}`;
  const argv = commandWithoutDashes("mount", [["-t", "hugetlbfs"], ...optionList(size)], ["nodev", path]);
  const { code, stderr } = await host.run(argv, { signal });
  if (code === 0) return;
  const why = stderr.trim() || `exit code ${code}`;
  throw new CodedError("failed_precondition", `mounting huge pages of ${pageBytes} bytes on ${path} failed: ${why}`);
}

/** tmpfs supports noswap since Linux 6.4. */
export async function kernelHasNoswap(host: Host, signal?: AbortSignal): Promise<boolean> {
  const release = await readProc(host, "/proc/sys/kernel/osrelease", signal);
  const [major = 0, minor = 0] = release.split(".").map((part) => Number.parseInt(part, 10));
  return major > 6 || (major === 6 && minor >= 4);
}

/** True if commands run with CAP_SYS_ADMIN. */
export async function mayMount(host: Host, signal?: AbortSignal): Promise<boolean> {
  const capabilities = /^CapEff:\s*([0-9a-f]+)$/m.exec(await readProc(host, "/proc/self/status", signal))?.[1] ?? "0";
  return ((BigInt(`0x${capabilities}`) >> 21n) & 1n) === 1n;
}

/** Maximum table size, bytes: an overlay mount lists the directories of all of its image's layers. */
const maxTableBytes = 16 * 1024 * 1024;

async function readProc(host: Host, path: string, signal?: AbortSignal): Promise<string> {
  return (await host.fs.readFile(path, { maxBytes: maxTableBytes, ...(signal && { signal }) })).toString("utf8");
}

/** Unmount timeout, milliseconds, as in the kubelet; afterwards a file system whose server is gone is unmounted by force. */
const unmountTimeoutMs = 60_000;

/** True for a network file system, whose server may be gone. Pure. */
export function isRemote({ fsType }: Pick<Mount, "fsType">): boolean {
  return ["nfs", "nfs4", "cifs", "smb3", "ceph"].includes(fsType);
}

/** Unmounts a path if it is mounted; by force if its server does not answer. @param inMemory the mount is a tmpfs. */
export async function unmount(host: Host, path: string, signal?: AbortSignal, inMemory = false): Promise<void> {
  const options = { timeoutMs: unmountTimeoutMs, brief: inMemory, ...(signal && { signal }) };
  const { code, stderr } =
    (await ignoreCode(host.run(command("umount", [], [path]), options), "deadline_exceeded")) ??
    (await host.run(command("umount", ["-f"], [path]), options));
  if (code === 0) return;
  if (!(await listMounts(host, signal)).some((mount) => mount.path === path)) return;
  throw new CodedError("failed_precondition", `unmounting ${path} failed: ${stderr.trim() || `exit code ${code}`}`);
}

/** Unmounts without propagation: if a user bind-mounted a directory containing mounts into a pod's directory, these are peers
 *  of the mounts at the source and would be unmounted there too. @param outermost the mount around it, or the mount itself.
 *  @see https://docs.kernel.org/filesystems/sharedsubtree.html */
export async function unmountPrivately(
  host: Host,
  path: string,
  outermost: string,
  signal: AbortSignal,
): Promise<void> {
  const { code, stderr } = await host.run(commandWithoutDashes("mount", ["--make-rprivate"], [outermost]), { signal });
  if (code !== 0 && (await listMounts(host, signal)).some((mount) => mount.path === outermost))
    throw new CodedError(
      "failed_precondition",
      `cannot make mount ${outermost} private: ${stderr.trim() || `exit code ${code}`}`,
    );
  await unmount(host, path, signal);
}

/** The outermost mount around a mount among these, or the mount itself. */
export function outermostMount(path: string, mounts: readonly string[]): string {
  const around = mounts.filter((mount) => path === mount || path.startsWith(`${mount}/`));
  return around.reduce((shortest, mount) => (mount.length < shortest.length ? mount : shortest), path);
}
