import { readFileSync } from "node:fs";
import { join } from "node:path";
import { addImage } from "../cluster/images/build.ts";
import type { Cluster } from "./cluster.ts";
import { servedStore } from "./registry.ts";

/** The class whose claims it serves. */
export const localPathClass = "local-path";

const file = join(import.meta.dirname, "..", "integration", "storage", "local-path.yaml");

/** Gives a cluster whose node is Ready rancher's provisioner of folders on the node, in a pod of that node. It is built once per
 *  machine, in two minutes.
 *  @returns where volumes lie on the machine, each in a folder of its own. */
export async function startLocalPathProvisioner(cluster: Cluster): Promise<string> {
  const { layout } = cluster;
  await addImage("rancher/local-path-provisioner", servedStore(layout), console.error);
  const folder = join(layout.dir, "local-path");
  await cluster.apply(readFileSync(file, "utf8").replaceAll("/opt/local-path-provisioner", folder));
  const provisioner = ["deployment/local-path-provisioner", "-n=local-path-storage"];
  await cluster.mustKubectl(["rollout", "status", ...provisioner, "--timeout=120s"], { timeoutMs: 130_000 });
  return folder;
}
