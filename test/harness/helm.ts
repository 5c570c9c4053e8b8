import { join } from "node:path";
import type { Cluster } from "./cluster.ts";
import { networkArgv } from "./namespaces.ts";
import { type Finished, must, run, type RunOptions } from "./processes.ts";
import type { Layout } from "./state.ts";

const tools = join(import.meta.dirname, "..", "cluster", "tools");

/** The chart of this checkout. */
export const chart = join(import.meta.dirname, "..", "..", "charts", "graftlet");

/** Helm as a cluster's administrator has it. */
export interface Helm {
  /** Its program. */
  readonly program: string;
  /** Runs it in the cluster's network; files that it names are the machine's. */
  helm(args: readonly string[], options?: RunOptions): Promise<Finished>;
  /** As `helm`, for what must succeed: returns its output, throws with its error. */
  mustHelm(args: readonly string[], options?: RunOptions): Promise<string>;
}

/** The pinned helm: built when it is not in the cache, which takes some minutes. */
export async function findHelm(): Promise<string> {
  const folder = await must([join(tools, "build.sh"), "--module", "helm"], { timeoutMs: 1_800_000 });
  return join(folder.trim(), "helm");
}

/** The command line of helm as a cluster's administrator. @param program of `findHelm`. */
export function helmArgv({ layout, adminKubeconfig }: Cluster, program: string, args: readonly string[]): string[] {
  return withOwnHome(layout, ["env", `KUBECONFIG=${adminKubeconfig}`, program, ...args]);
}

/** A command in a cluster's network whose helm keeps its files with the cluster's. */
export function withOwnHome(layout: Layout, argv: readonly string[]): string[] {
  const home = join(layout.dir, "helm");
  const own = ["CACHE", "CONFIG", "DATA"].map((what) => `HELM_${what}_HOME=${home}`);
  return networkArgv(layout, ["env", ...own, ...argv]);
}

/** @param program of `findHelm`. */
export function helmOf(cluster: Cluster, program: string): Helm {
  const helm: Helm["helm"] = (args, options) =>
    run(helmArgv(cluster, program, args), { timeoutMs: 300_000, ...options });
  return {
    program,
    helm,
    async mustHelm(args, options) {
      const done = await helm(args, options);
      if (done.code !== 0) throw new Error(`helm ${args.join(" ")} failed with ${done.code}: ${done.stderr.trim()}`);
      return done.stdout;
    },
  };
}
