import type { Host } from "../seams/host.ts";
import { command, script } from "../seams/command.ts";

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
