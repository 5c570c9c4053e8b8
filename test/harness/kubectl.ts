import type { ChildProcess } from "node:child_process";
import { join } from "node:path";
import { stringify } from "yaml";
import { openApi, Refused } from "./api.ts";
import { networkArgv } from "./namespaces.ts";
import { type Finished, run, type RunOptions, start, type StartOptions } from "./processes.ts";
import type { Layout } from "./state.ts";
import type { Tools } from "./tools.ts";

/** A cluster as its admin sees it. */
export interface Kubectl {
  /** Runs kubectl in the cluster's network; files it names are the machine's. */
  kubectl(args: readonly string[], options?: RunOptions): Promise<Finished>;
  /** As `kubectl`, for what must succeed: returns its output, throws with its error. */
  mustKubectl(args: readonly string[], options?: RunOptions): Promise<string>;
  /** Starts kubectl and returns the running child (`logs -f`, `exec -i`, `port-forward`). */
  startKubectl(args: readonly string[], options?: StartOptions): ChildProcess;
  /** One object as the API server has it; `undefined` when there is none. Throws on any other error. */
  get<T = unknown>(kind: Kind, name: string, namespace?: string): Promise<T | undefined>;
  /** Applies manifests: YAML text or objects. Throws with kubectl's words. */
  apply(manifests: string | readonly object[] | object): Promise<void>;
}

/** Kinds by the names that kubectl takes. */
type Kind = keyof typeof kinds;

const [core, apps] = ["/api/v1", "/apis/apps/v1"];

const kinds = {
  configmap: { group: core, plural: "configmaps", namespaced: true },
  csr: { group: "/apis/certificates.k8s.io/v1", plural: "certificatesigningrequests", namespaced: false },
  deployment: { group: apps, plural: "deployments", namespaced: true },
  lease: { group: "/apis/coordination.k8s.io/v1", plural: "leases", namespaced: true },
  node: { group: core, plural: "nodes", namespaced: false },
  pod: { group: core, plural: "pods", namespaced: true },
  secret: { group: core, plural: "secrets", namespaced: true },
  service: { group: core, plural: "services", namespaced: true },
} as const;

/** The command line of kubectl as the cluster's admin. */
export function kubectlArgv(layout: Layout, tools: Tools, args: readonly string[]): string[] {
  return networkArgv(layout, [
    tools.path("kubectl"),
    `--kubeconfig=${join(layout.dir, "admin.kubeconfig")}`,
    `--cache-dir=${join(layout.dir, "kubectl-cache")}`,
    ...args,
  ]);
}

/** kubectl for the cluster at `layout`. */
export function kubectlOf(layout: Layout, tools: Tools): Kubectl {
  const argv = (args: readonly string[]): string[] => kubectlArgv(layout, tools, args);
  const kubectl: Kubectl["kubectl"] = (args, options) => run(argv(args), options);
  const mustKubectl: Kubectl["mustKubectl"] = async (args, options) => {
    const done = await kubectl(args, options);
    if (done.code !== 0) throw new Error(`kubectl ${args.join(" ")} failed with ${done.code}: ${done.stderr.trim()}`);
    return done.stdout;
  };
  return {
    kubectl,
    mustKubectl,
    startKubectl: (args, options) => start(argv(args), options),
    async get<T>(kind: Kind, name: string, namespace = "default") {
      const { group, plural, namespaced } = kinds[kind];
      using api = openApi(layout);
      try {
        return await api.get<T>(`${group}${namespaced ? `/namespaces/${namespace}` : ""}/${plural}/${name}`);
      } catch (error) {
        if (error instanceof Refused && error.status === 404) return undefined;
        throw error;
      }
    },
    async apply(manifests) {
      const text =
        typeof manifests === "string"
          ? manifests
          : [manifests]
              .flat()
              .map((object) => stringify(object))
              .join("---\n");
      await mustKubectl(["apply", "--filename=-"], { stdin: text });
    },
  };
}
