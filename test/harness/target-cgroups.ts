import { join } from "node:path";
import { type CgroupDriver, cgroupPath } from "../../src/pod/cgroup-path.ts";
import type { Cluster } from "./cluster.ts";
import { hasSystemd, podCgroupDriver } from "./runtime-daemon.ts";

/** Cgroups of a cluster's target, named as the cgroupfs driver has them: `kubepods/burstable`. */
export interface TargetCgroups {
  /** Its path below the mount of a hierarchy, as the target's driver has it. */
  pathOf(name: string): string;
  /** Contents of a file of each cgroup, read in one go; of a file with two names the one that is there: version 1's or 2's.
   *  Throws when one of them has neither. */
  read(names: readonly string[], ...files: readonly string[]): Promise<string[]>;
  /** CPU time that each has used so far, nanoseconds. */
  cpuTime(names: readonly string[]): Promise<number[]>;
}

const script = `files=$1; shift
for path; do
  found=
  for file in $files; do
    for each in /sys/fs/cgroup"$path"/$file /sys/fs/cgroup/*"$path"/$file; do
      [ -z "$found" ] && [ -e "$each" ] && found=$each && cat "$each" && echo --
    done
  done
  [ "$found" ] || { echo "$path has none of $files" >&2; exit 1; }
done`;

/** The cgroups of a cluster's target. @param driver who makes them; as its provider has it unless given. */
export function targetCgroups(cluster: Cluster, driver: CgroupDriver = podCgroupDriver(cluster)): TargetCgroups {
  // A machine with a systemd of its own has the cluster's cgroup for its root.
  const root = hasSystemd(cluster.provider) ? "/" : cluster.layout.cgroup;
  const pathOf = (name: string) => join("/", root, cgroupPath(name.split("/"), driver));
  const read: TargetCgroups["read"] = async (names, ...files) => {
    const argv = ["sh", "-c", script, "sh", files.join(" "), ...names.map(pathOf)];
    const { code, stdout, stderr } = await cluster.runInside(argv);
    if (code !== 0) throw new Error(stderr);
    return stdout
      .split(/^--$/m)
      .slice(0, -1)
      .map((text) => text.trim());
  };
  return {
    pathOf,
    read,
    async cpuTime(names) {
      const said = await read(names, "cpuacct.usage", "cpu.stat");
      return said.map((text) => {
        const micros = /^usage_usec (\d+)/m.exec(text)?.[1];
        return micros === undefined ? Number(text) : Number(micros) * 1000;
      });
    },
  };
}
