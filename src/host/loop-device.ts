import { posix } from "node:path";
import { CodedError, hasCode, messageOf, ignoreCode, ignoreNotFound } from "../lib/errors.ts";
import type { Host } from "../seams/host.ts";
import { listMounts, unmount } from "./mounts.ts";
import { type Argv, command } from "../seams/command.ts";

// A pod's raw block device is bind-mounted to a file of the node, and a loop device on that file keeps it open. The loop devices
// of a file are read from the kernel, so they are found again after a crash.

/** Attaches a loop device to a path to keep the device there open, unless one is attached. @returns true if one was attached.
 *  @throws failed_precondition with the kubelet's message if the target has no `losetup` or no free loop device. */
export async function attachLoopDevice(host: Host, path: string, signal: AbortSignal): Promise<boolean> {
  if ((await loopDevicesOf(host, path, signal)).length > 0) return false;
  const why = await losetup(host, command("losetup", ["-f"], [path]), signal);
  if (why === undefined) return true;
  throw new CodedError("failed_precondition", `makeLoopDevice failed for path ${path}: ${why}`);
}

/** Undoes a device's setup at a path: detaches its loop devices, unmounts it and removes the file. Idempotent. @throws
 *  failed_precondition if a loop device cannot be detached, conflict while the device is in use. */
export async function releaseDevicePath(host: Host, path: string, signal?: AbortSignal): Promise<void> {
  // There may be several if an earlier process was killed while creating one.
  for (const holder of await loopDevicesOf(host, path, signal)) {
    const why = await losetup(host, command("losetup", [["-d", holder]]), signal);
    if (why !== undefined && (await loopDevicesOf(host, path, signal)).includes(holder))
      throw new CodedError("failed_precondition", `removeLoopDevice failed for path ${path}: ${why}`);
  }
  const real = await realPath(host, path, signal);
  for (const mount of (await listMounts(host, signal)).filter((one) => one.path === real))
    await unmount(host, mount.path, signal).catch((error: unknown) => {
      if (!hasCode(error, "failed_precondition")) throw error;
      throw new CodedError("conflict", `failed to unmount linkPath ${path}: ${messageOf(error)}`, { cause: error });
    });
  await ignoreNotFound(host.fs.apply([{ kind: "remove", path }], signal));
}

/** Loop devices attached to a file. */
async function loopDevicesOf(host: Host, path: string, signal?: AbortSignal): Promise<readonly string[]> {
  const all = (await ignoreNotFound(host.fs.list("/sys/block", signal))) ?? [];
  const loops = all.map(({ name }) => name).filter((name) => /^loop[0-9]+$/.test(name));
  const wanted = [path, await realPath(host, path, signal)];
  const found = loops.map(async (name) => {
    const reading = host.fs.readFile(`/sys/block/${name}/loop/backing_file`, options(signal));
    // Missing for a detached device; unreadable while it is being detached.
    const file = await ignoreCode(reading, "not_found", "failed_precondition", "unknown");
    // The kernel marks unlinked files.
    const backing = file
      ?.toString("utf8")
      .trimEnd()
      .replace(/ ?\(deleted\)$/, "");
    return backing !== undefined && wanted.includes(backing) ? [`/dev/${name}`] : [];
  });
  return (await Promise.all(found)).flat();
}

/** The path with its directory's symlinks resolved, as the kernel shows it; the file need not exist. */
async function realPath(host: Host, path: string, signal?: AbortSignal): Promise<string> {
  const directory = await ignoreNotFound(host.fs.realpath(posix.dirname(path), signal));
  return directory === undefined ? path : posix.join(directory, posix.basename(path));
}

/** @returns the failure, with the kubelet's text and the program's. */
async function losetup(host: Host, argv: Argv, signal?: AbortSignal): Promise<string | undefined> {
  const ran = await ignoreNotFound(host.run(argv, options(signal)));
  if (ran?.code === 0) return undefined;
  const why = ran
    ? [`exit status ${ran.code}`, ran.stderr.trim()].filter((text) => text !== "").join(": ")
    : 'exec: "losetup": executable file not found in $PATH';
  return `${argv.filter((word) => word !== "--").join(" ")} failed: ${why}`;
}

function options(signal: AbortSignal | undefined): { readonly signal?: AbortSignal } {
  return { ...(signal && { signal }) };
}
