import { readFileSync } from "node:fs";
import { join } from "node:path";
import { parseAllDocuments } from "yaml";
import { addImage } from "../cluster/images/build.ts";
import { type ImageRecipe, shell } from "../cluster/images/catalog.ts";
import { nfsImages } from "../cluster/images/nfs.ts";
import { storageImages } from "../cluster/images/storage.ts";
import type { Cluster } from "./cluster.ts";
import { servedStore } from "./registry.ts";
import type { Layout } from "./state.ts";
import { kubectlTimeout, patience } from "./wait.ts";

/** Programs of others that serve claims and attachments for a driver: those of sidecars.yaml. */
export type Sidecar = "csi-provisioner" | "csi-attacher" | "csi-resizer";

/** How a driver is set up. */
export interface CsiOptions {
  /** The provisioner alone unless given. */
  readonly sidecars?: readonly Sidecar[];
  /** Flags of the driver after those of driver.yaml (test/cluster/tools/csi/hostpathplugin/main.go). */
  readonly args?: readonly string[];
  /** Fields of the CSIDriver's spec that differ. */
  readonly spec?: Readonly<Record<string, unknown>>;
  /** Where it runs; on the cluster's machine unless given. */
  readonly machine?: CsiMachine;
}

/** A machine of a node that has a driver. */
export interface CsiMachine {
  readonly layout: Pick<Layout, "dir" | "registry" | "kubeletRoot">;
  /** Fields that the driver's pods need to get there. */
  readonly placed?: object;
}

/** A CSI driver that runs in pods of a cluster. */
export interface CsiDriver {
  /** Where volumes lie on the machine, each in a folder or file of its handle's name. */
  readonly data: string;
  /** Calls that the driver's pod has had and logged, oldest first; without the frequent Probe. */
  calls(): Promise<readonly CsiCall[]>;
}

/** A call of a CSI method, as the driver logged it. */
export interface CsiCall {
  /** Without its service, such as NodePublishVolume. */
  readonly method: string;
  /** Fields by their names in csi.proto; those without a value lack. */
  readonly request: Readonly<Record<string, unknown>>;
  /** What it was refused with; empty when it was not. */
  readonly error: string;
}

/** The name of the driver, of its storage class, and of the DaemonSet that runs it. */
export const csi = {
  driver: "hostpath.csi.k8s.io",
  storageClass: "csi-hostpath",
  daemonSet: "csi-hostpath-node",
  namespace: "kube-system",
} as const;

/** Has a cluster's registries serve what the manifests of Kubernetes' tests of CSI name, each built once per machine.
 *  @returns the names, with their tags. */
export function addStorageImages(cluster: Pick<Cluster, "layout">): Promise<readonly string[]> {
  return addImages(
    cluster,
    storageImages(shell).filter(({ name }) => name.startsWith("sig-storage/")),
  );
}

/** The same of what Kubernetes' tests of NFS name. */
export function addNfsImages(cluster: Pick<Cluster, "layout">): Promise<readonly string[]> {
  return addImages(cluster, nfsImages(shell));
}

async function addImages({ layout }: Pick<Cluster, "layout">, images: readonly ImageRecipe[]) {
  for (const { name } of images) await addImage(name, servedStore(layout), console.error);
  return images.flatMap(({ name, tags }) => tags.map((tag) => `registry.k8s.io/${name}:${tag}`));
}

/** Has a cluster's node pull images before anybody waits for them: in a guest each takes a minute. */
export async function pullAll(cluster: Cluster, images: readonly string[]): Promise<void> {
  const containers = images.map((image, index) => ({ name: `image-${index}`, image, args: ["--help"] }));
  const spec = { containers, restartPolicy: "Never", terminationGracePeriodSeconds: 0 };
  await cluster.apply({ apiVersion: "v1", kind: "Pod", metadata: { name: "images", namespace: "kube-system" }, spec });
  const pulled = ["get", "pod/images", "-n=kube-system", "-o=jsonpath={.status.containerStatuses[*].imageID}"];
  const arePulled = async (): Promise<boolean> =>
    (await cluster.mustKubectl(pulled)).split(" ").filter(Boolean).length === images.length;
  await cluster.waitFor("the images", arePulled, 240_000);
  await cluster.mustKubectl(["delete", "pod/images", "-n=kube-system"], { timeoutMs: patience(60_000) });
}

const always = ["hostpathplugin", "csi-node-driver-registrar", "livenessprobe"];

/** Gives a cluster whose node is Ready a CSI driver, in pods of that node, as its vendor's manifests do (test/integration/storage). Its
 *  programs are built once per machine: the driver's own in one to two minutes, the sidecars in four. */
export async function startCsiDriver(
  cluster: Cluster,
  { sidecars = ["csi-provisioner"], args = [], spec = {}, machine = cluster }: CsiOptions = {},
): Promise<CsiDriver> {
  const { layout } = machine;
  for (const name of [...always, ...sidecars])
    await addImage(`sig-storage/${name}`, servedStore(layout), console.error);
  const data = join(layout.dir, "csi-data");
  const objects = ["driver.yaml", "sidecars.yaml"].flatMap((file) => manifestsOf(file, layout.kubeletRoot, data));
  const wanted = objects.filter(
    ({ kind, metadata: { name } }) => kind !== "StatefulSet" || sidecars.some((one) => one === name),
  );
  for (const { kind, spec: own = {} } of wanted) {
    if (kind === "CSIDriver") Object.assign(own, spec);
    Object.assign(own.template?.spec ?? {}, machine.placed);
    if (kind === "DaemonSet") own.template?.spec.containers.find(({ name }) => name === "hostpath")?.args.push(...args);
  }
  await cluster.apply(wanted);
  const pods = [`daemonset/${csi.daemonSet}`, ...sidecars.map((name) => `statefulset/${name}`)];
  const rollout = (pod: string) =>
    cluster.mustKubectl(["rollout", "status", pod, `-n=${csi.namespace}`, kubectlTimeout(120)], { timeoutMs: 130_000 });
  await Promise.all(pods.map(rollout));
  return { data, calls: () => callsOf(cluster) };
}

/** A manifest as far as it is looked into. */
interface Manifest {
  readonly kind: string;
  readonly metadata: { readonly name: string };
  readonly spec?: {
    readonly template?: {
      readonly spec: { readonly containers: { readonly name: string; readonly args: string[] }[] };
    };
  };
}

function manifestsOf(file: string, kubeletRoot: string, data: string): Manifest[] {
  const text = readFileSync(join(import.meta.dirname, "..", "integration", "storage", file), "utf8")
    .replaceAll("/var/lib/kubelet", kubeletRoot)
    .replaceAll("/var/lib/csi-hostpath-data", data);
  return parseAllDocuments(text).map((document) => document.toJS() as Manifest);
}

/** What the driver writes after `gRPCCall: `. */
interface LoggedCall {
  readonly Method: string;
  readonly Request: Readonly<Record<string, unknown>>;
  readonly Error: string;
}

async function callsOf(cluster: Cluster): Promise<CsiCall[]> {
  const log = ["logs", `daemonset/${csi.daemonSet}`, `-n=${csi.namespace}`, "--container=hostpath", "--tail=-1"];
  const said = await cluster.mustKubectl(log);
  return [...said.matchAll(/ gRPCCall: (.*)$/gm)]
    .map(([, line = ""]) => JSON.parse(line) as LoggedCall)
    .map(({ Method, Request, Error: error }) => ({ method: Method.replace(/^.*\//, ""), request: Request, error }))
    .filter(({ method }) => method !== "Probe");
}
