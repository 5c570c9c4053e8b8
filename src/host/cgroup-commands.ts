import type { Host } from "../seams/host.ts";
import { command, script } from "../seams/command.ts";

/** Time for processes to go once they are killed: tenths of a second. */
const rounds = 20;

/** A process of another namespace has the number 0, which `kill` takes for the shell's own group. Two hierarchies may have different
 *  processes. */
const killScript = `for round in ${Array.from({ length: rounds }, (_, at) => at + 1).join(" ")}; do
  pids=$(for dir; do [ -d "$dir" ] && find "$dir" -name cgroup.procs -exec cat {} +; done 2>/dev/null | grep -v '^0$' | sort -un)
  [ -n "$pids" ] || exit 0
  echo $pids
  kill -9 $pids 2>/dev/null
  sleep 0.1
done`;

/** Kills all processes in cgroups and their descendants, and waits for their end, two seconds at most.
 *  @param directories of the cgroups in every hierarchy; missing ones are passed over.
 *  @returns the numbers of those that were there. */
export async function killProcesses(
  host: Pick<Host, "run">,
  directories: readonly string[],
  signal: AbortSignal,
): Promise<readonly number[]> {
  const { stdout } = await host.run(script(killScript, ...directories), { signal });
  const pids = stdout.split(/\s+/).filter((word) => word !== "");
  return [...new Set(pids.map(Number))];
}

/** Inode numbers of directories, by path; none for a missing one. They differ from those of others that are made there later. By looks
 *  where those cost less, else in one command for all of them. */
export async function inodes(
  host: Pick<Host, "run"> & { readonly fs: Pick<Host["fs"], "lstatAll"> },
  directories: readonly string[],
  signal: AbortSignal,
): Promise<ReadonlyMap<string, string>> {
  if (directories.length === 0) return new Map();
  if (!host.fs.lstatAll) return new Map(await listed(host, directories, signal));
  const found = await host.fs.lstatAll(directories, signal);
  return new Map([...found].flatMap(([path, info]) => (info ? [[path, String(info.inode)] as const] : [])));
}

async function listed(
  host: Pick<Host, "run">,
  directories: readonly string[],
  signal: AbortSignal,
): Promise<readonly (readonly [path: string, inode: string])[]> {
  const { stdout } = await host.run(command("stat", [["-c", "%i %n"]], directories), { signal });
  const lines = stdout.split("\n").filter((line) => line !== "");
  return lines.map((line) => [line.slice(line.indexOf(" ") + 1), line.slice(0, line.indexOf(" "))]);
}
