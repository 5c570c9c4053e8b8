import type { ChildProcess } from "node:child_process";
import { join } from "node:path";
import { stringify } from "yaml";
import { type Api, openApi, Refused } from "./api.ts";
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
  serviceaccount: { group: core, plural: "serviceaccounts", namespaced: true },
} as const;

/** Kinds that are applied without a kubectl, which costs more than the API server's work: by apiVersion and kind. */
const applied: ReadonlyMap<string, { readonly plural: string; readonly namespaced: boolean }> = new Map(
  Object.entries({
    "v1/ConfigMap": { plural: "configmaps", namespaced: true },
    "v1/Namespace": { plural: "namespaces", namespaced: false },
    "v1/Pod": { plural: "pods", namespaced: true },
    "v1/Secret": { plural: "secrets", namespaced: true },
    "v1/Service": { plural: "services", namespaced: true },
    "v1/ServiceAccount": { plural: "serviceaccounts", namespaced: true },
    "apps/v1/Deployment": { plural: "deployments", namespaced: true },
    "rbac.authorization.k8s.io/v1/ClusterRole": { plural: "clusterroles", namespaced: false },
    "rbac.authorization.k8s.io/v1/ClusterRoleBinding": { plural: "clusterrolebindings", namespaced: false },
    "rbac.authorization.k8s.io/v1/Role": { plural: "roles", namespaced: true },
    "rbac.authorization.k8s.io/v1/RoleBinding": { plural: "rolebindings", namespaced: true },
  }),
);

/** A manifest as far as its path in the API goes. */
interface Manifest {
  readonly apiVersion?: string;
  readonly kind?: string;
  readonly metadata?: { readonly name?: string; readonly namespace?: string };
}

/** The path at which a manifest is applied; undefined for what kubectl applies. */
function applyPath({ apiVersion = "", kind = "", metadata: { name, namespace = "default" } = {} }: Manifest) {
  const known = applied.get(`${apiVersion}/${kind}`);
  if (!known || name === undefined) return undefined;
  const group = apiVersion === "v1" ? core : `/apis/${apiVersion}`;
  return `${group}${known.namespaced ? `/namespaces/${namespace}` : ""}/${known.plural}/${name}`;
}

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
  let opened: Api | undefined;
  // Its connections keep no process alive.
  const api = (): Api => (opened ??= openApi(layout));
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
      try {
        return await api().get<T>(`${group}${namespaced ? `/namespaces/${namespace}` : ""}/${plural}/${name}`);
      } catch (error) {
        if (error instanceof Refused && error.status === 404) return undefined;
        throw error;
      }
    },
    async apply(manifests) {
      if (typeof manifests === "string") {
        await mustKubectl(["apply", "--filename=-"], { stdin: manifests });
        return;
      }
      for (const manifest of [manifests].flat()) {
        const path = applyPath(manifest);
        const done = path !== undefined && (await serverApplied(api(), path, manifest));
        if (!done) await mustKubectl(["apply", "--filename=-"], { stdin: stringify(manifest) });
      }
    },
  };
}

/** Server-side apply. @returns false when the API server refuses it: kubectl's words are told then.
 *  @see https://kubernetes.io/docs/reference/using-api/server-side-apply/ */
async function serverApplied(api: Api, path: string, manifest: object): Promise<boolean> {
  try {
    await api.patch(`${path}?fieldManager=tests&force=true&fieldValidation=Strict`, manifest, "apply-patch");
    return true;
  } catch (error) {
    if (error instanceof Refused) return false;
    throw error;
  }
}
