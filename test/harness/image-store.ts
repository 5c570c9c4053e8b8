import { join } from "node:path";
import type { Cluster } from "./cluster.ts";
import { dockerEngine } from "./docker-engine.ts";
import { hasDocker, runtimeDaemons } from "./runtime-daemon.ts";
import { openCri } from "./runtime-lens.ts";

/** The store of a cluster's container runtime, on a file system of its own. */
export interface ImageStore {
  /** Names of all images that the runtime has. */
  names(): Promise<readonly string[]>;
  /** Fills the file system with a file that is no image, up to so many percent. */
  fill(percent: number): Promise<void>;
  /** Percentage of the file system that is used, as a kubelet counts. */
  usedPercent(): Promise<number>;
}

/** Names of all images that a cluster's runtime has. */
export async function imageNames(cluster: Cluster): Promise<readonly string[]> {
  if (hasDocker(cluster.provider)) {
    const said = await dockerEngine(cluster).docker(["images", "--format", "{{.Repository}}:{{.Tag}}"]);
    return said.trim().split("\n");
  }
  await using runtime = openCri(cluster);
  const images = await runtime.listImages(AbortSignal.timeout(20_000));
  return images.flatMap(({ repoTags, repoDigests }) => [...repoTags, ...repoDigests]);
}

/** Gives a cluster's runtime an empty store on a file system of its own, in a file; it ends with the cluster's namespaces. The runtime
 *  must have nothing yet. */
export async function smallImageStore(cluster: Cluster, mebibytes: number): Promise<ImageStore> {
  const { layout } = cluster;
  const { store } = runtimeDaemons[cluster.provider];
  const directory = store(layout);
  const file = join(layout.dir, "image-store");
  const inside = async (script: string) => {
    const { code, stdout, stderr } = await cluster.runInside(["sh", "-c", script]);
    if (code !== 0) throw new Error(`${script} failed with ${code}: ${stderr}`);
    return stdout;
  };
  await cluster.killRuntime();
  await inside(
    `truncate -s ${mebibytes}M ${file} && mkfs.ext4 -q -m 0 ${file} && rm -rf ${directory} && mkdir -p ${directory} && mount -o loop ${file} ${directory}`,
  );
  await cluster.startRuntime();
  const space = async () => {
    const [total = 0, free = 0] = (await inside(`stat -f -c '%b %a' ${directory}`)).split(" ").map(Number);
    return { total, free };
  };
  return {
    names: () => imageNames(cluster),
    async fill(percent) {
      await inside(`rm -f ${directory}/ballast && sync`);
      const { total, free } = await space();
      const blocks = Math.floor((total * percent) / 100) - (total - free);
      if (blocks > 0)
        await inside(`fallocate -l $(( ${blocks} * $(stat -f -c %S ${directory}) )) ${directory}/ballast`);
    },
    async usedPercent() {
      const { total, free } = await space();
      return 100 - Math.floor((free * 100) / total);
    },
  };
}
