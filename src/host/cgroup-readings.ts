import { posix } from "node:path";
import { CodedError } from "../lib/errors.ts";
import type { Host } from "../seams/host.ts";
import { script } from "../seams/command.ts";

/** A cgroup to read, with its containers' cgroups. */
export interface CgroupRequest {
  /** Path from the root cgroup, such as `/kubepods/burstable/pod1`; `/` is the root itself. */
  readonly path: string;
  /** IDs of containers; missing ones are omitted. */
  readonly containerIds?: readonly string[];
  /** The container whose network namespace is read for all of them; if it has no process, that of another one with a process. */
  readonly networkOf?: string;
}

/** Files of cgroups and /proc, read at one time. */
export interface CgroupReadings {
  /** Files of each existing cgroup, by its path from the root, then by name. */
  readonly groups: ReadonlyMap<string, FileTexts>;
  /** Files by absolute path: /proc/uptime, /proc/meminfo, /proc/loadavg, /proc/diskstats, /proc/net/dev, /proc/pressure/*, and
   *  /proc/PID/net/dev of one process of each cgroup whose network was requested. */
  readonly proc: FileTexts;
}

export type FileTexts = ReadonlyMap<string, string>;

const mount = "/sys/fs/cgroup";
/** Maximum output and number of files, enough for some thousand pods; more is an error. */
const maxOutputBytes = 32 * 2 ** 20;
const maxFiles = 200_000;
const readTimeoutMs = 30_000;
/** The child of a container's cgroup into which crun moves its processes with systemd and cgroup v2.
 *  @see https://github.com/containers/crun/blob/main/crun.1.md */
const crunChild = "container";

/** Files by hierarchy. */
const filesV1: Readonly<Record<string, string>> = {
  cpu: "cpu.shares cpu.cfs_period_us cpu.cfs_quota_us cpu.stat",
  cpuacct: "cpuacct.usage cpuacct.stat",
  memory:
    "memory.usage_in_bytes memory.max_usage_in_bytes memory.failcnt memory.limit_in_bytes memory.soft_limit_in_bytes memory.memsw.limit_in_bytes memory.kmem.usage_in_bytes memory.oom_control memory.stat",
  pids: "pids.current pids.max",
  blkio: "blkio.throttle.io_service_bytes_recursive blkio.throttle.io_serviced_recursive",
};
const filesV2: Readonly<Record<string, string>> = {
  ".": "cpu.stat cpu.weight cpu.max cpu.pressure memory.current memory.peak memory.max memory.min memory.stat memory.events memory.events.local memory.swap.current memory.swap.max memory.pressure pids.current pids.max io.stat io.pressure",
};

const procFiles = [
  "uptime",
  "meminfo",
  "loadavg",
  "diskstats",
  "net/dev",
  "pressure/cpu",
  "pressure/memory",
  "pressure/io",
].map((name) => `/proc/${name}`);

/** Lists the files to read, and reads them with one program: a few processes in total, for any number of pods. Runtimes name a
 *  container's cgroup by the container's ID (CRI-O: `crio-ID`), or with systemd `PREFIX-ID.scope`; conmon's cgroup is skipped. The
 *  processes of a cgroup are read from the first hierarchy; with crun they are in its child `container`. Those of the root cgroup,
 *  which has processes of its own in addition to those of its children, are read from the cpu hierarchy. Standard input: one cgroup
 *  per line, `PATH NETWORK ID…`, where NETWORK is `-` unless the network of the first container with a process is read. */
const readScript = `cd ${mount} || exit 1
first=$1; shift
tell() { for file in $files; do echo "$dir/$file"; done; }
{
  printf '%s\\n' ${procFiles.join(" ")}
  while read -r path network ids; do
    [ "$path" = / ] && path=
    for each; do
      root=\${each%% *}; files=\${each#* }
      dir=$root$path; [ -d "$dir" ] || continue
      tell
      case "$path$root" in cpu|.) echo "$dir/cgroup.procs" ;; esac
      for id in $ids; do
        for dir in "$root$path/$id" "$root$path"/*-"$id" "$root$path"/*-"$id".scope; do
          case $dir in *-conmon-*) continue ;; esac
          [ -d "$dir" ] || continue
          tell
          [ "$root" = "$first" ] || continue
          echo "$dir/cgroup.procs"
          read -r pid <"$dir/cgroup.procs" || {
            dir=$dir/${crunChild}
            read -r pid <"$dir/cgroup.procs" || continue
            echo "$dir/cgroup.procs"
          }
          [ "$network" = - ] || echo "/proc/$pid/net/dev"
          network=-
        done
      done
    done
  done
} 2>/dev/null | xargs tail -v -n +1 2>/dev/null
exit 0`;

/** Reads the accounting files of cgroups on the target in one command. Cgroups that vanish meanwhile are omitted. @throws failed_precondition if the target's cgroups cannot be read.
 *  @see https://docs.kernel.org/admin-guide/cgroup-v2.html */
export async function readCgroups(
  host: Pick<Host, "run">,
  version: 1 | 2,
  wanted: readonly CgroupRequest[],
  signal: AbortSignal,
): Promise<CgroupReadings> {
  const files = version === 2 ? filesV2 : filesV1;
  const hierarchies = Object.entries(files).map(([root, names]) => `${root} ${names}`);
  const argv = script(readScript, version === 2 ? "." : "memory", ...hierarchies);
  const stdin = wanted
    .map(({ path, networkOf, containerIds = [] }) => {
      const isPreferred = (id: string) => id === networkOf;
      const ids = [...containerIds.filter(isPreferred), ...containerIds.filter((id) => !isPreferred(id))];
      return `${[path, networkOf === undefined ? "-" : "+", ...ids].join(" ")}\n`;
    })
    .join("");
  const { stdout, truncated } = await host.run(argv, { stdin, maxOutputBytes, timeoutMs: readTimeoutMs, signal });
  if (truncated || countFiles(stdout) > maxFiles)
    throw new CodedError("resource_exhausted", "too many cgroups on the target");
  const readings = parseReadings(stdout);
  if (!readings.proc.has("/proc/meminfo"))
    throw new CodedError("failed_precondition", `cannot read the target's cgroups in ${mount}`);
  return readings;
}

function countFiles(output: string): number {
  let files = 0;
  for (let at = output.indexOf(fileMark); at >= 0; at = output.indexOf(fileMark, at + 1)) files += 1;
  return files;
}

const fileMark = "==> ";

/** Returns the container's own file for a file of crun's child cgroup, since the child has the container's processes. */
function withoutCrunChild(file: string): string {
  const inChild = `/${crunChild}/cgroup.procs`;
  return file.endsWith(inChild) ? file.replace(inChild, "/cgroup.procs") : file;
}

/** Parses the output of `tail -v` for several files: each is preceded by a line with its name. */
function parseReadings(output: string): CgroupReadings {
  const groups = new Map<string, Map<string, string>>();
  const proc = new Map<string, string>();
  const [, ...parts] = output.split(/^==> (.*) <==$/m);
  for (let at = 0; at < parts.length; at += 2) {
    const [name = "", text = ""] = [parts[at], parts[at + 1]?.trim()];
    if (name.startsWith("/")) proc.set(name, text);
    else {
      const path = posix.dirname(withoutCrunChild(name.slice(name.indexOf("/"))));
      const files = groups.get(path) ?? new Map<string, string>();
      files.set(posix.basename(name), text);
      groups.set(path, files);
    }
  }
  return { groups, proc };
}
