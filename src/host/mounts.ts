import { basename, dirname, join } from "node:path/posix";
import { linesOf } from "../lib/bounded-text.ts";
import { coalesce } from "../lib/coalesce.ts";
import { CodedError, unlessCode } from "../lib/errors.ts";
import { untilAborted } from "../lib/service-group.ts";
import type { TargetBudget } from "../lib/target-budget.ts";
import type { Host } from "../seams/host.ts";
import { type Option, command, commandWithoutDashes } from "../seams/command.ts";

/** Source and mount point of a mount. */
export interface Shown {
  /** `major:minor` of its file system. */
  readonly device: string;
  /** Path within the file system that is mounted at `path`. */
  readonly root: string;
  readonly path: string;
}

export interface Mount extends Shown {
  /** Shared: mounts in it propagate to its peers, such as a container's. */
  readonly shared: boolean;
  readonly fsType: string;
  readonly source: string;
  /** Its files have labels of SELinux. */
  readonly labels?: true;
}

/** The target's mounts, in the order of mounting. @see https://man7.org/linux/man-pages/man5/proc_pid_mountinfo.5.html */
export async function listMounts(host: Host, signal?: AbortSignal): Promise<readonly Mount[]> {
  return parseMounts(await readProc(host, "/proc/self/mountinfo", signal), host.budget);
}

/** Lists mounts once for all concurrent callers: the table has hundreds of lines on a full node. A caller never gets a list
 *  that was read before its call. */
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

/** The mounts in a table of the form of /proc/self/mountinfo. @throws as `linesOf` does. */
export function parseMounts(table: string, budget?: TargetBudget): readonly Mount[] {
  return linesOf(table, budget).flatMap((line) => {
    const [left, right] = line.split(" - ");
    const [, , device = "", root = "", path, own = "", ...optional] = left?.split(" ") ?? [];
    const [fsType, source = "", common = ""] = right?.split(" ") ?? [];
    if (!path || !fsType) return [];
    const shared = optional.some((field) => field.startsWith("shared:"));
    // It stands among the mount's options, or among those of its file system.
    const labels = [own, common].some((options) => options.split(",").includes("seclabel"));
    const shown = { path: unescape(path), device, root: unescape(root), source: unescape(source) };
    return [{ ...shown, shared, fsType, ...(labels && { labels }) }];
  });
}

/** The third to fifth columns of /proc/self/mountinfo, a mount a line. */
export function parseShown(columns: string): readonly Shown[] {
  return linesOf(columns).flatMap((line) => {
    const [device, root, path] = line.split(" ");
    return device && root && path ? [{ device, root: unescape(root), path: unescape(path) }] : [];
  });
}

/** The kernel writes blanks, tabs, newlines and backslashes in octal. */
function unescape(text: string): string {
  return text.replace(/\\([0-7]{3})/g, (_, octal: string) => String.fromCharCode(Number.parseInt(octal, 8)));
}

/** The mount that a path lies on; of several at one place the last. @param path without links. */
function holderOf<M extends Shown>(mounts: readonly M[], path: string): M | undefined {
  return mounts
    .filter((mount) => isAtOrBelow(path, mount.path))
    .reduce<M | undefined>((best, one) => (best && best.path.length > one.path.length ? best : one), undefined);
}

/** True for a path and for all below it. Pure. */
export function isAtOrBelow(path: string, root: string): boolean {
  return path === root || path.startsWith(root === "/" ? "/" : `${root}/`);
}

/** A path as its file system has it, wherever that is mounted; undefined when no mount holds it. Pure. @param path without links. */
export function placeOf(mounts: readonly Shown[], path: string): Omit<Shown, "path"> | undefined {
  const holder = holderOf(mounts, path);
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

/** True for a mount point, links followed. @throws not_found when it is not there. */
export async function isMountPoint(
  host: Host,
  path: string,
  signal?: AbortSignal,
  list: MountLister = (stop) => listMounts(host, stop),
): Promise<boolean> {
  const [real, mounts] = await Promise.all([host.fs.realpath(path, signal), list(signal)]);
  return mounts.some((mount) => mount.path === real);
}

/** True when files on the mount that a path lies on have labels of SELinux. The path itself is not looked at: its server may be gone.
 *  @param path its directory has to be there. */
export async function takesLabels(host: Host, path: string, signal: AbortSignal): Promise<boolean> {
  const [directory, mounts] = await Promise.all([host.fs.realpath(dirname(path), signal), listMounts(host, signal)]);
  return holderOf(mounts, join(directory, basename(path)))?.labels === true;
}

/** Makes mounts below a directory propagate to the mounts that were made from it, and back from shared ones. A shared mount stays
 *  as it is; otherwise the directory becomes a mount, which goes when the directory goes.
 *  @throws failed_precondition when mounting fails.
 *  @see https://docs.kernel.org/filesystems/sharedsubtree.html */
export async function shareDirectory(host: Host, path: string, signal: AbortSignal): Promise<void> {
  const [real, mounts] = await Promise.all([host.fs.realpath(path, signal), listMounts(host, signal)]);
  const holder = holderOf(mounts, real);
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
  /** Bytes; without it the kernel's default, half of memory. */
  readonly sizeBytes?: number;
  /** True when the kernel can keep it out of swap; found out when absent. */
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
    host.run(commandWithoutDashes("mount", [["-t", "tmpfs"], ...optionList(options)], ["tmpfs", path]), {
      ...(signal && { signal }),
    });
  // In a user namespace the option is refused although the kernel knows it: mount without it.
  if ((noswap ?? (await kernelHasNoswap(host, signal))) && (await mount([...size, "noswap"])).code === 0) return;
  const { code, stderr } = await mount(size);
  if (code === 0) return;
  const why = (await mayMount(host, signal)) ? "failed_precondition" : "permission_denied";
  throw new CodedError(why, `mounting a tmpfs on ${path} failed: ${stderr.trim() || `exit code ${code}`}`);
}

/** Mount options as `mount` takes them. */
function optionList(options: readonly string[]): readonly Option[] {
  return options.length > 0 ? [["-o", options.join(",")]] : [];
}

/** Mounts a file system of huge pages on a directory. @param pageBytes size of a page.
 *  @throws failed_precondition when mounting fails. @see https://docs.kernel.org/admin-guide/mm/hugetlbpage.html */
export async function mountHugetlbfs(host: Host, path: string, pageBytes: number, signal: AbortSignal): Promise<void> {
  const size = `pagesize=${pageBytes}`;
  const argv = commandWithoutDashes("mount", [["-t", "hugetlbfs"], ...optionList([size])], ["nodev", path]);
  const { code, stderr } = await host.run(argv, { signal });
  if (code === 0) return;
  const why = stderr.trim() || `exit code ${code}`;
  throw new CodedError("failed_precondition", `mounting huge pages of ${pageBytes} bytes on ${path} failed: ${why}`);
}

/** tmpfs can stay out of swap since Linux 6.4. */
export async function kernelHasNoswap(host: Host, signal?: AbortSignal): Promise<boolean> {
  const release = await readProc(host, "/proc/sys/kernel/osrelease", signal);
  const [major = 0, minor = 0] = release.split(".").map((part) => Number.parseInt(part, 10));
  return major > 6 || (major === 6 && minor >= 4);
}

/** True when the user that commands run as holds CAP_SYS_ADMIN. */
export async function mayMount(host: Host, signal?: AbortSignal): Promise<boolean> {
  const capabilities = /^CapEff:\s*([0-9a-f]+)$/m.exec(await readProc(host, "/proc/self/status", signal))?.[1] ?? "0";
  return ((BigInt(`0x${capabilities}`) >> 21n) & 1n) === 1n;
}

/** Longest table, bytes: a mount of a container may name the directories of all of its image's layers. */
const longestTable = 16 * 1024 * 1024;

async function readProc(host: Host, path: string, signal?: AbortSignal): Promise<string> {
  return (await host.fs.readFile(path, { maxBytes: longestTable, ...(signal && { signal }) })).toString("utf8");
}

/** Longest time of unmounting, milliseconds: a file system whose server is gone is then forced off. The kubelet's. */
const longestUnmountMs = 60_000;

/** True for a file system of another machine, which may be gone. Pure. */
export function isRemote({ fsType }: Pick<Mount, "fsType">): boolean {
  return ["nfs", "nfs4", "cifs", "smb3", "ceph"].includes(fsType);
}

/** Unmounts a path, if it is mounted; by force when its server does not answer. */
export async function unmount(host: Host, path: string, signal?: AbortSignal): Promise<void> {
  const options = { timeoutMs: longestUnmountMs, ...(signal && { signal }) };
  const { code, stderr } =
    (await unlessCode(host.run(command("umount", [], [path]), options), "deadline_exceeded")) ??
    (await host.run(command("umount", ["-f"], [path]), options));
  if (code === 0) return;
  if (!(await listMounts(host, signal)).some((mount) => mount.path === path)) return;
  throw new CodedError("failed_precondition", `unmounting ${path} failed: ${stderr.trim() || `exit code ${code}`}`);
}

/** Unmounts without propagation: where a user bound a directory with mounts of its own into a pod's directory, those are peers of
 *  the mounts at the source and would be unmounted there, too.
 *  @param outermost the mount around it, or itself.
 *  @see https://docs.kernel.org/filesystems/sharedsubtree.html */
export async function unmountAlone(host: Host, path: string, outermost: string, signal: AbortSignal): Promise<void> {
  const { code, stderr } = await host.run(commandWithoutDashes("mount", ["--make-rprivate"], [outermost]), { signal });
  if (code !== 0 && (await listMounts(host, signal)).some((mount) => mount.path === outermost))
    throw new CodedError(
      "failed_precondition",
      `the mount ${outermost} cannot be parted from its source: ${stderr.trim() || `exit code ${code}`}`,
    );
  await unmount(host, path, signal);
}

/** The outermost mount around a mount among these, or the mount itself. */
export function outermostOf(path: string, mounts: readonly string[]): string {
  const around = mounts.filter((mount) => path === mount || path.startsWith(`${mount}/`));
  return around.reduce((shortest, mount) => (mount.length < shortest.length ? mount : shortest), path);
}
