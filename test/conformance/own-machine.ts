import { join } from "node:path";
import { cgroupHierarchies, createCgroup } from "../harness/cgroups.ts";
import { insideArgv } from "../harness/namespaces.ts";
import { must, type ProcessId } from "../harness/processes.ts";
import { runtimeDaemons } from "../harness/runtime-daemon.ts";
import type { RuntimeRig } from "../harness/runtime-rig.ts";
import type { Layout } from "../harness/state.ts";
import type { Outside } from "./options.ts";

/** The size of a rig's own disk: more than the 4 GiB that upstream's tests of eviction fill. What is not written takes no space. */
const diskGiB = 9;

/** Gives a rig, whose runtime has nothing yet, a disk and cgroups of its own, so that its node measures and fills nothing but
 *  itself. Both end with the rig. @param folders of the node that are on that disk, with the runtime's own. */
export async function giveOwnMachine(
  { layout, daemons }: RuntimeRig,
  holder: ProcessId,
  provider: Outside,
  folders: readonly string[],
): Promise<void> {
  const { role, store } = runtimeDaemons[provider];
  await daemons.kill(role);
  createCgroup(layout);
  const script = [...diskScript(layout, [store(layout), ...folders]), ...cgroupScript(layout)].join("\n");
  await must(insideArgv(layout, holder, ["sh", "-ec", script]));
  await daemons.startRuntime();
}

/** One file system for images, containers, volumes and logs, as on a machine with a single disk. What is deleted on it goes back to
 *  the machine's own. */
function diskScript({ dir }: Layout, folders: readonly string[]): readonly string[] {
  const [file, disk] = [join(dir, "disk.ext4"), join(dir, "disk")];
  return [
    `truncate -s ${diskGiB}G ${file}`,
    `mkfs.ext4 -q -m 0 -i 32768 ${file}`,
    `mkdir ${disk}`,
    `mount -o loop,discard ${file} ${disk}`,
    `mount --make-private ${disk}`,
    ...folders.flatMap((folder) => {
      const own = join(disk, folder.slice(1).replaceAll("/", "-"));
      return [`mkdir -p ${own} ${folder}`, `mount --bind ${own} ${folder}`, `mount --make-rshared ${folder}`];
    }),
  ];
}

/** The rig's cgroup takes the place of the root in each hierarchy: a second mount above the first would confuse programs that look a
 *  hierarchy up. */
function cgroupScript({ dir, cgroup }: Layout): readonly string[] {
  const between = join(dir, "cgroup");
  return [
    `mkdir ${between}`,
    ...cgroupHierarchies().flatMap((hierarchy) => [
      `mount --bind ${hierarchy}${cgroup} ${between}`,
      `umount -l ${hierarchy}`,
      `mount --bind ${between} ${hierarchy}`,
      `umount ${between}`,
    ]),
  ];
}
