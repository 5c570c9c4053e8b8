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

/** A kind's place in the API. */
interface Place {
  readonly apiVersion: string;
  readonly kind: string;
  readonly plural: string;
  readonly clusterWide?: true;
}

const rbac = "rbac.authorization.k8s.io/v1";

const kinds = {
  clusterrole: { apiVersion: rbac, kind: "ClusterRole", plural: "clusterroles", clusterWide: true },
  clusterrolebinding: {
    apiVersion: rbac,
    kind: "ClusterRoleBinding",
    plural: "clusterrolebindings",
    clusterWide: true,
  },
  configmap: { apiVersion: "v1", kind: "ConfigMap", plural: "configmaps" },
  csinode: { apiVersion: "storage.k8s.io/v1", kind: "CSINode", plural: "csinodes", clusterWide: true },
  csr: {
    apiVersion: "certificates.k8s.io/v1",
    kind: "CertificateSigningRequest",
    plural: "certificatesigningrequests",
    clusterWide: true,
  },
  deployment: { apiVersion: "apps/v1", kind: "Deployment", plural: "deployments" },
  lease: { apiVersion: "coordination.k8s.io/v1", kind: "Lease", plural: "leases" },
  namespace: { apiVersion: "v1", kind: "Namespace", plural: "namespaces", clusterWide: true },
  node: { apiVersion: "v1", kind: "Node", plural: "nodes", clusterWide: true },
  pod: { apiVersion: "v1", kind: "Pod", plural: "pods" },
  role: { apiVersion: rbac, kind: "Role", plural: "roles" },
  rolebinding: { apiVersion: rbac, kind: "RoleBinding", plural: "rolebindings" },
  secret: { apiVersion: "v1", kind: "Secret", plural: "secrets" },
  service: { apiVersion: "v1", kind: "Service", plural: "services" },
  serviceaccount: { apiVersion: "v1", kind: "ServiceAccount", plural: "serviceaccounts" },
} as const satisfies Readonly<Record<string, Place>>;

/** The path of an object in the API. */
function pathOf({ apiVersion, plural, clusterWide }: Place, name: string, namespace = "default"): string {
  const group = apiVersion.includes("/") ? `/apis/${apiVersion}` : `/api/${apiVersion}`;
  return `${group}${clusterWide ? "" : `/namespaces/${namespace}`}/${plural}/${name}`;
}

/** A manifest as far as its path goes. */
interface Manifest {
  readonly apiVersion?: string;
  readonly kind?: string;
  readonly metadata?: { readonly name?: string; readonly namespace?: string };
}

/** The path of a manifest's object; undefined for a kind that is not known here. */
function manifestPath({ apiVersion, kind, metadata: { name, namespace } = {} }: Manifest): string | undefined {
  const place = Object.values(kinds).find((known) => known.apiVersion === apiVersion && known.kind === kind);
  return place && name !== undefined ? pathOf(place, name, namespace) : undefined;
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
      try {
        return await api().get<T>(pathOf(kinds[kind], name, namespace));
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
        const path = manifestPath(manifest);
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
