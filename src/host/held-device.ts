import { posix } from "node:path";
import { CodedError, hasCode, messageOf, unlessCode, unlessGone } from "../lib/errors.ts";
import type { Host } from "../seams/host.ts";
import { listMounts, unmount } from "./mounts.ts";
import { type Argv, command } from "../seams/command.ts";

// A raw block device that a pod has is bound to a file of the node's, and a loop device on that file keeps it open. What holds a file is
// read from the kernel, so it is found again after a crash.

/** Holds the device at a path open by a loop device, if none does. @returns true when it was not held.
 *  @throws failed_precondition in the kubelet's words where the target has no `losetup`, or no free loop device. */
export async function holdDevice(host: Host, path: string, signal: AbortSignal): Promise<boolean> {
  if ((await holdersOf(host, path, signal)).length > 0) return false;
  const why = await losetup(host, command("losetup", ["-f"], [path]), signal);
  if (why === undefined) return true;
  throw new CodedError("failed_precondition", `makeLoopDevice failed for path ${path}: ${why}`);
}

/** Takes back what was made at a path for a device: lets go of it, unmounts it, removes the file. Safe to repeat.
 *  @throws failed_precondition when it cannot be let go of, conflict while something still has it open. */
export async function releaseDevice(host: Host, path: string, signal?: AbortSignal): Promise<void> {
  // More than one where an earlier process was killed while it made one.
  for (const holder of await holdersOf(host, path, signal)) {
    const why = await losetup(host, command("losetup", [["-d", holder]]), signal);
    if (why !== undefined && (await holdersOf(host, path, signal)).includes(holder))
      throw new CodedError("failed_precondition", `removeLoopDevice failed for path ${path}: ${why}`);
  }
  const real = await realPath(host, path, signal);
  for (const mount of (await listMounts(host, signal)).filter((one) => one.path === real))
    await unmount(host, mount.path, signal).catch((error: unknown) => {
      if (!hasCode(error, "failed_precondition")) throw error;
      throw new CodedError("conflict", `failed to unmount linkPath ${path}: ${messageOf(error)}`, { cause: error });
    });
  await unlessGone(host.fs.apply([{ do: "remove", path }], signal));
}

/** Loop devices on a file. */
async function holdersOf(host: Host, path: string, signal?: AbortSignal): Promise<readonly string[]> {
  const all = (await unlessGone(host.fs.list("/sys/block", signal))) ?? [];
  const loops = all.map(({ name }) => name).filter((name) => /^loop[0-9]+$/.test(name));
  const wanted = [path, await realPath(host, path, signal)];
  const found = loops.map(async (name) => {
    const reading = host.fs.readFile(`/sys/block/${name}/loop/backing_file`, options(signal));
    // Not there where the device holds nothing; unreadable while it lets go.
    const file = await unlessCode(reading, "not_found", "failed_precondition", "unknown");
    // The kernel says so of a file that has lost its name.
    const backing = file
      ?.toString("utf8")
      .trimEnd()
      .replace(/ ?\(deleted\)$/, "");
    return backing !== undefined && wanted.includes(backing) ? [`/dev/${name}`] : [];
  });
  return (await Promise.all(found)).flat();
}

/** The path as the kernel has it, without links in its directory; the file need not be there. */
async function realPath(host: Host, path: string, signal?: AbortSignal): Promise<string> {
  const directory = await unlessGone(host.fs.realpath(posix.dirname(path), signal));
  return directory === undefined ? path : posix.join(directory, posix.basename(path));
}

/** @returns why it failed, in the kubelet's words and the program's. */
async function losetup(host: Host, argv: Argv, signal?: AbortSignal): Promise<string | undefined> {
  const ran = await unlessGone(host.run(argv, options(signal)));
  if (ran?.code === 0) return undefined;
  const why = ran
    ? [`exit status ${ran.code}`, ran.stderr.trim()].filter((text) => text !== "").join(": ")
    : 'exec: "losetup": executable file not found in $PATH';
  return `${argv.filter((word) => word !== "--").join(" ")} failed: ${why}`;
}

function options(signal: AbortSignal | undefined): { readonly signal?: AbortSignal } {
  return { ...(signal && { signal }) };
}
