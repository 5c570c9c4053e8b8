import type { Cluster } from "./cluster.ts";
import { mountsOf } from "./pod-machine.ts";

/** Files of the node's that loop devices hold, each with its device, in order. */
export async function heldDevices(cluster: Cluster): Promise<ReadonlyMap<string, string>> {
  const list = ["losetup", "--list", "--noheadings", "--raw", "--output", "BACK-FILE,NAME"];
  const lines = (await cluster.mustRunInside(list)).split("\n").toSorted();
  const own = lines.filter((line) => line.startsWith(`${cluster.layout.kubeletRoot}/`));
  return new Map(own.map((line) => line.split(" ") as [string, string]));
}

/** Waits until just these files in a directory are mounted, each once, and are held. */
export async function untilMapped(cluster: Cluster, directory: string, files: readonly string[]): Promise<void> {
  const wanted = String(files.map((file) => `${directory}/${file}`).toSorted());
  const standing = () => mountsOf(cluster).filter((path) => path.startsWith(`${directory}/`));
  await cluster.waitFor(
    "devices to be mapped and held",
    async () => {
      const held = [...(await heldDevices(cluster)).keys()].filter((path) => path.startsWith(`${directory}/`));
      return String(held) === wanted && String(standing().toSorted()) === wanted;
    },
    { explain: () => `${standing().join(" ")}, not ${wanted}` },
  );
}
