import { CodedError } from "../lib/errors.ts";
import type { Host } from "../seams/host.ts";
import { type Option, command } from "../seams/command.ts";

/** Timeout of a walk, milliseconds: walking many files takes long. */
const walkTimeoutMs = 300_000;
/** Maximum number of paths per command. */
const batch = 50;

/** Bytes on disk below each path, without other file systems; missing paths are omitted. The paths must not contain each
 *  other. @throws failed_precondition if the target cannot measure.
 *  @see https://man7.org/linux/man-pages/man1/du.1.html */
export async function diskUsage(
  host: Host,
  paths: readonly string[],
  signal: AbortSignal,
): Promise<ReadonlyMap<string, number>> {
  const used = new Map<string, number>();
  for (const some of batches(paths)) {
    const { code, stdout, stderr } = await du(host, ["-skx"], some, signal);
    for (const [path, kibibytes] of numbersIn(stdout)) used.set(path, kibibytes * 1024);
    // `du` also exits with 1 if a file vanishes during the walk.
    if (code > 1) throw new CodedError("failed_precondition", `du failed: ${stderr.trim() || `exit code ${code}`}`);
  }
  return used;
}

/** Number of files and directories below each path; empty if the target's `du` cannot count them. */
export async function inodeUsage(
  host: Host,
  paths: readonly string[],
  signal: AbortSignal,
): Promise<ReadonlyMap<string, number>> {
  const used = new Map<string, number>();
  for (const some of batches(paths)) {
    const { stdout } = await du(host, ["--inodes", "-sx"], some, signal);
    for (const [path, count] of numbersIn(stdout)) used.set(path, count);
  }
  return used;
}

function du(host: Host, options: readonly Option[], paths: readonly string[], signal: AbortSignal) {
  return host.run(command("du", options, paths), { timeoutMs: walkTimeoutMs, signal });
}

function batches(paths: readonly string[]): readonly (readonly string[])[] {
  return Array.from({ length: Math.ceil(paths.length / batch) }, (_, index) =>
    paths.slice(index * batch, (index + 1) * batch),
  );
}

function numbersIn(stdout: string): readonly (readonly [path: string, number: number])[] {
  return stdout.split("\n").flatMap((line) => {
    const [, number, path] = /^(\d+)\t(.*)$/.exec(line) ?? [];
    return number !== undefined && path !== undefined ? [[path, Number(number)] as const] : [];
  });
}

/** The device of a path's file system, such as `/dev/sda1`; empty if unknown.
 *  @see https://pubs.opengroup.org/onlinepubs/9799919799/utilities/df.html */
export async function fileSystemDevice(host: Pick<Host, "run">, path: string, signal: AbortSignal): Promise<string> {
  const [device = ""] = await devicesIn(host, [path], signal);
  return device;
}

/** The devices of several paths' file systems, in order. One `df` reads them all; it is repeated for each path only if one is missing. */
export async function fileSystemDevices(
  host: Pick<Host, "run">,
  paths: readonly string[],
  signal: AbortSignal,
): Promise<readonly string[]> {
  const devices = await devicesIn(host, paths, signal);
  if (devices.length === paths.length) return devices;
  return Promise.all(paths.map((path) => fileSystemDevice(host, path, signal)));
}

/** Runs one `df`. Its result is shorter than the list of paths if some of them do not exist. */
async function devicesIn(
  host: Pick<Host, "run">,
  paths: readonly string[],
  signal: AbortSignal,
): Promise<readonly string[]> {
  const { stdout } = await host.run(command("df", ["-P"], paths), { signal });
  const [, ...lines] = stdout.trimEnd().split("\n");
  return lines.map((line) => line.split(/\s+/)[0] ?? "");
}
