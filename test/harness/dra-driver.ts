import { once } from "node:events";
import { renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Cluster } from "./cluster.ts";
import { textOf } from "./processes.ts";
import type { Layout } from "./state.ts";
import { buildProgram } from "./tools.ts";

/** The driver's name, and that of the DeviceClass of its devices. */
export const draDriver = "dra.graftlet.dev";

/** A DRA driver that runs on a node's machine (test/cluster/tools/dra). */
export interface DraDriver extends AsyncDisposable {
  /** Calls so far, such as `prepare my-claim`, oldest first. */
  calls(): readonly string[];
  /** From now on each preparation fails with a message; undefined ends that. */
  failWith(message: string | undefined): void;
  /** From now on the driver reports this health of its devices. */
  reportHealth(health: "Healthy" | "Unhealthy", message: string): void;
}

/** Directory of CDI specs that the cluster's containerd reads. */
export function cdiDirectory({ dir }: Pick<Layout, "dir">): string {
  return join(dir, "cdi");
}

/** Where a driver's node is: that of the cluster's own machine unless given. */
export interface DraNode {
  readonly nodeName: string;
  /** The node's root directory. */
  readonly rootDir: string;
  /** Directory of CDI specs that the node's runtime reads. */
  readonly cdiDir: string;
}

/** Starts the driver with two devices, and creates its DeviceClass. */
export async function startDraDriver(
  cluster: Cluster,
  { nodeName, rootDir, cdiDir }: DraNode = nodeOf(cluster),
): Promise<DraDriver> {
  const { layout, adminKubeconfig } = cluster;
  const program = await buildProgram({ name: "dra-driver", module: "dra" }, console.error);
  const [calls, failing, health] = ["calls", "failing", "health"].map((name) => join(layout.dir, `dra-${name}`)) as [
    string,
    string,
    string,
  ];
  const child = cluster.spawnInside([
    program,
    `--driver-name=${draDriver}`,
    `--kubeconfig=${adminKubeconfig}`,
    `--node-name=${nodeName}`,
    `--root-dir=${rootDir}`,
    `--cdi-dir=${cdiDir}`,
    `--calls=${calls}`,
    `--failing=${failing}`,
    `--health=${health}`,
  ]);
  const ended = once(child, "exit");
  await cluster.apply({
    apiVersion: "resource.k8s.io/v1",
    kind: "DeviceClass",
    metadata: { name: draDriver },
    spec: { selectors: [{ cel: { expression: `device.driver == "${draDriver}"` } }] },
  });
  return {
    calls: () => textOf(calls).split("\n").filter(Boolean),
    failWith(message) {
      if (message === undefined) rmSync(failing, { force: true });
      else writeFileSync(failing, message);
    },
    reportHealth(state, message) {
      writeFileSync(`${health}.new`, `${state} ${message}`);
      renameSync(`${health}.new`, health);
    },
    async [Symbol.asyncDispose]() {
      child.kill("SIGTERM");
      await ended;
    },
  };
}

function nodeOf({ nodeName, layout }: Cluster): DraNode {
  return { nodeName, rootDir: layout.kubeletRoot, cdiDir: cdiDirectory(layout) };
}
