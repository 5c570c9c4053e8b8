import type { Host } from "../seams/host.ts";
import { command, script } from "../seams/command.ts";
import { cgroupMount as mount, wordsOf } from "./cgroup-inheritance.ts";
import { exists } from "./exists.ts";

/** Time for killed processes to end, in tenths of a second. */
const killRounds = 20;

/** A process of another PID namespace has PID 0, which `kill` would take as the shell's own process group. The hierarchies may
 *  contain different processes. */
const killScript = `for round in ${Array.from({ length: killRounds }, (_, at) => at + 1).join(" ")}; do
  pids=$(for dir; do [ -d "$dir" ] && find "$dir" -name cgroup.procs -exec cat {} +; done 2>/dev/null | grep -v '^0$' | sort -un)
  [ -n "$pids" ] || exit 0
  echo $pids
  kill -9 $pids 2>/dev/null
  sleep 0.1
done`;

/** Kills all processes in cgroups and their descendants, and waits for their end, two seconds at most.
 *  @param directories of the cgroups in every hierarchy; missing ones are skipped.
 *  @returns the PIDs of the processes found. */
export async function killProcesses(
  host: Pick<Host, "run">,
  directories: readonly string[],
  signal: AbortSignal,
): Promise<readonly number[]> {
  const { stdout } = await host.run(script(killScript, ...directories), { signal });
  const pids = stdout.split(/\s+/).filter((word) => word !== "");
  return [...new Set(pids.map(Number))];
}

/** Inode numbers of directories, by path; none for a missing one. A re-created directory has a different one. Uses lstat where
 *  that is cheaper, otherwise one command for all. */
export async function inodes(
  host: Pick<Host, "run"> & { readonly fs: Pick<Host["fs"], "lstatAll"> },
  directories: readonly string[],
  signal: AbortSignal,
): Promise<ReadonlyMap<string, string>> {
  if (directories.length === 0) return new Map();
  if (!host.fs.lstatAll) return new Map(await inodesByCommand(host, directories, signal));
  const found = await host.fs.lstatAll(directories, signal);
  return new Map([...found].flatMap(([path, info]) => (info ? [[path, String(info.inode)] as const] : [])));
}

async function inodesByCommand(
  host: Pick<Host, "run">,
  directories: readonly string[],
  signal: AbortSignal,
): Promise<readonly (readonly [path: string, inode: string])[]> {
  const { stdout } = await host.run(command("stat", [["-c", "%i %n"]], directories), { signal });
  const lines = stdout.split("\n").filter((line) => line !== "");
  return lines.map((line) => [line.slice(line.indexOf(" ") + 1), line.slice(0, line.indexOf(" "))]);
}

/** v2 controllers that the kubelet needs in a cgroup whose limits it sets. */
const requiredControllers: readonly string[] = ["cpu", "cpuset", "hugetlb", "memory", "pids"];

/** A cgroup's path from the root, and its name in messages. */
export interface NamedCgroup {
  readonly path: string;
  readonly name: string;
}

/** Validates that limits can be set in a cgroup created by others; returns the kubelet's message, or undefined if valid. With
 *  v1 the cgroup must exist in each hierarchy.
 *  @param roots of the hierarchies. */
export async function validateV1(
  host: Host,
  roots: readonly string[],
  { path, name }: NamedCgroup,
  signal: AbortSignal,
): Promise<string | undefined> {
  const paths = roots.map((root) => root + path);
  const there = await Promise.all(paths.map((each) => exists(host.fs, each, signal)));
  const missing = paths.filter((_, index) => !there[index]);
  return missing.length > 0 ? `cgroup ${name} has some missing paths: ${missing.join(", ")}` : undefined;
}

/** Like `validateV1`, for v2: the cgroup must have all controllers of the kernel that the kubelet uses, which its parent enables. */
export async function validateV2(
  host: Host,
  { path, name }: NamedCgroup,
  signal: AbortSignal,
): Promise<string | undefined> {
  const fileOf = (directory: string) => `${mount}${directory}/cgroup.controllers`;
  const [present, enabled] = await Promise.all([fileOf(""), fileOf(path)].map((file) => wordsOf(host, file, signal)));
  if (enabled === undefined)
    return `could not read controllers for cgroup ${name}: open ${fileOf(path)}: no such file or directory`;
  const missing = requiredControllers.filter(
    (controller) => present?.includes(controller) && !enabled.includes(controller),
  );
  return missing.length > 0 ? `cgroup ${name} has some missing controllers: ${missing.join(", ")}` : undefined;
}
