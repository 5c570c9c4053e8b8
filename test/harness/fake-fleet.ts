import { copyFileSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { V1ConfigMap, V1Deployment } from "@kubernetes/client-node";
import { stringify } from "yaml";
import { agentAddresses, createFurtherMachine } from "./agent-machine.ts";
import { poolPath } from "../../src/fleet/pool.ts";
import { type Agent, startGraftletWith } from "./agent.ts";
import type { Api } from "./api.ts";
import { certificatesIn } from "./certificates.ts";
import { objectsIn, ofKind, type Rendered, templateArguments } from "./chart.ts";
import type { Cluster } from "./cluster.ts";
import { findHelm, helmOf } from "./helm.ts";
import { addresses } from "./namespaces.ts";
import { start } from "./processes.ts";

/** The release whose account and configuration graftlet has. */
export const fleetRelease = { account: "edge-graftlet", namespace: "graftlet" } as const;

const apiVersion = "graftlet.dev/v1alpha1";
const mounted = "/var/run/secrets/kubernetes.io/serviceaccount";
/** Kinds of a release that start pods. */
const workloads = ["Deployment", "Job", "Pod"];
/** The Node of the Pods that the policies take graftlet for, which nothing runs. */
const homeName = "home";

/** Starts graftlet as a release of the chart does, with its configuration, account, rights and policies, but on the agent's machine in place
 *  of a Pod, and with machines in memory behind the provider `ssh`. The cluster's provider is one over SSH: there the agent has a network of
 *  its own, as a Pod does. @param name of its log. @param env of the process, beside a Pod's. */
export async function startFakeFleet(
  cluster: Cluster,
  name: string,
  env: Readonly<Record<string, string>> = {},
): Promise<Agent> {
  return startOnlyReplica(cluster, { name, env, inMemory: true });
}

/** Starts graftlet in the same way, with the machines that its objects name. */
export async function startFleet(
  cluster: Cluster,
  name: string,
  env: Readonly<Record<string, string>> = {},
): Promise<Agent> {
  return startOnlyReplica(cluster, { name, env, inMemory: false });
}

async function startOnlyReplica(
  cluster: Cluster,
  own: Pick<ReplicaOptions, "name" | "env" | "inMemory">,
): Promise<Agent> {
  const objects = await installed(cluster);
  const { spawnAtAgent } = cluster;
  const pod = `${fleetRelease.account}-1`;
  return startReplica(cluster, objects, { ...own, pod, address: agentAddresses.agent, spawnAtAgent });
}

/** Starts several such processes, each on a machine of its own, which share the objects. @param env of each, by its index from 1. */
export async function startFakeReplicas(
  cluster: Cluster,
  count: number,
  env: (index: number) => Readonly<Record<string, string>>,
): Promise<AsyncDisposable & { readonly replicas: readonly FakeReplica[] }> {
  await using stack = new AsyncDisposableStack();
  const objects = await installed(cluster);
  const replicas: FakeReplica[] = [];
  for (let index = 1; index <= count; index += 1) {
    const { address, argv, ...machine } = await createFurtherMachine(cluster.layout, index);
    stack.use(machine);
    const pod = `${fleetRelease.account}-${index}`;
    const spawnAtAgent: Cluster["spawnAtAgent"] = (command, options = {}) =>
      start(argv(command, options.cwd), { ...options, cwd: "/" });
    const own = { name: `replica-${index}`, pod, address, spawnAtAgent, env: env(index), inMemory: true };
    replicas.push({ pod, agent: stack.use(await startReplica(cluster, objects, own)) });
  }
  const all = stack.move();
  return { replicas, [Symbol.asyncDispose]: () => all.disposeAsync() };
}

/** A replica, by the name of the Pod that it is taken for. */
export interface FakeReplica {
  readonly pod: string;
  readonly agent: Agent;
}

interface ReplicaOptions extends Pick<Cluster, "spawnAtAgent"> {
  /** Of its log. */
  readonly name: string;
  readonly pod: string;
  readonly address: string;
  readonly env: Readonly<Record<string, string>>;
  /** Whether the machines are in memory. */
  readonly inMemory: boolean;
}

async function startReplica(
  cluster: Cluster,
  objects: readonly Rendered[],
  { name, pod, address, env, inMemory, ...machine }: ReplicaOptions,
): Promise<Agent> {
  const { layout } = cluster;
  const configuration = ofKind<V1ConfigMap>(objects, "ConfigMap").find(({ data }) => data?.["nodes.yaml"])?.data;
  const file = join(layout.dir, `${name}.yaml`);
  writeFileSync(file, configuration?.["nodes.yaml"] ?? "");
  await createPod(cluster, objects, { pod, address });
  const files = await accountFiles(cluster, pod);
  const script = `mkdir -p ${mounted}; cp ${files}/* ${mounted}; exec "$@"`;
  const ofChart = nodeOptions(objects);
  const spawnAtAgent: Cluster["spawnAtAgent"] = (argv, options) => {
    // What the chart sets takes the place of the same option of the command line.
    const others = argv.filter((word) => !ofChart.some((option) => word.split("=")[0] === option.split("=")[0]));
    return machine.spawnAtAgent(["sh", "-ec", script, "sh", ...others], options);
  };
  const flags = [`--nodes=${file}`, `--cert-dir=${join(layout.dir, `${name}-pki`)}`];
  const server = { KUBERNETES_SERVICE_HOST: addresses.node, KUBERNETES_SERVICE_PORT: String(addresses.apiServerPort) };
  const options = { NODE_OPTIONS: [...ofChart, env["NODE_OPTIONS"] ?? ""].join(" ") };
  const started = (more: typeof env, program?: string) =>
    startGraftletWith({ layout, spawnAtAgent }, name, flags, { ...server, ...more, ...env, ...options }, program);
  return inMemory ? started({ FAKE_SSH: "1" }, "test/harness/fake-nodes-entry.ts") : started({});
}

/** The options of Node.js that the release's Deployment sets. */
function nodeOptions(objects: readonly Rendered[]): readonly string[] {
  const [deployment] = ofKind<V1Deployment>(objects, "Deployment");
  const env = deployment?.spec?.template.spec?.containers[0]?.env ?? [];
  const { value = "" } = env.find(({ name }) => name === "NODE_OPTIONS") ?? {};
  return value.split(" ").filter((option) => option !== "");
}

/** Creates a pool whose template is all that machines in memory need, with the Secret of their login. */
export async function createFakePool(api: Pick<Api, "create">): Promise<void> {
  const { namespace } = fleetRelease;
  await api.create(`/api/v1/namespaces/${namespace}/secrets`, {
    apiVersion: "v1",
    kind: "Secret",
    metadata: { name: "login", namespace },
    stringData: { "ssh-privatekey": "a key" },
  });
  const template = {
    ssh: { secretRef: { name: "login" }, hostKeyFingerprints: [`SHA256:${"A".repeat(43)}`] },
    kubeletConfiguration: { failSwapOn: false, failCgroupV1: false },
  };
  const metadata = { name: "edge", namespace };
  await api.create(poolPath(namespace), { apiVersion, kind: "GraftedNodePool", metadata, spec: { template } });
}

/** The object of a machine in memory, a member of that pool. */
export function fakeMachine(name: string) {
  const metadata = { name, namespace: fleetRelease.namespace };
  const spec = { poolRef: { name: "edge" }, ssh: { host: `${name}.example` } };
  return { apiVersion, kind: "GraftedNode", metadata, spec };
}

/** Applies what a release consists of, without its pods. @returns all of its objects. */
async function installed(cluster: Cluster): Promise<readonly Rendered[]> {
  const values = ["--set=fleet.enabled=true", "--set=fleet.nodeNames={edge-*}"];
  const text = await helmOf(cluster, await findHelm()).mustHelm(templateArguments(...values));
  const objects = objectsIn(text);
  await cluster.apply({ apiVersion: "v1", kind: "Namespace", metadata: { name: fleetRelease.namespace } });
  const applied = objects.filter(({ kind }) => !workloads.includes(kind));
  const stdin = applied.map((object) => stringify(object)).join("---\n");
  await cluster.mustKubectl(["apply", "--server-side", "--filename=-"], { stdin });
  const definitions = ofKind<Rendered>(objects, "CustomResourceDefinition").map(({ metadata }) => metadata.name);
  const waited = definitions.map((definition) => `crd/${definition}`);
  await cluster.mustKubectl(["wait", "--for=condition=Established", "--timeout=30s", ...waited]);
  return objects;
}

/** Creates the Pod of the release's Deployment, which runs nowhere, with the agent's address: the policies hold graftlet to it. */
async function createPod(
  cluster: Cluster,
  objects: readonly Rendered[],
  { pod: podName, address }: Pick<ReplicaOptions, "pod" | "address">,
): Promise<void> {
  const { namespace } = fleetRelease;
  const [deployment] = ofKind<V1Deployment>(objects, "Deployment");
  const { labels } = deployment?.spec?.template.metadata ?? {};
  const home = { apiVersion: "v1", kind: "Node", metadata: { name: homeName } };
  const pod = {
    apiVersion: "v1",
    kind: "Pod",
    metadata: { name: podName, namespace, ...(labels && { labels }) },
    spec: {
      serviceAccountName: fleetRelease.account,
      nodeName: homeName,
      tolerations: [{ operator: "Exists" }],
      containers: [{ name: "graftlet", image: "graftlet" }],
    },
  };
  await cluster.apply([home, pod]);
  const patch = JSON.stringify({ status: { phase: "Running", podIP: address, podIPs: [{ ip: address }] } });
  await cluster.mustKubectl(["patch", "pod", podName, `--namespace=${namespace}`, "--subresource=status", "-p", patch]);
}

/** Writes what a Pod finds of its service account. @returns their folder. */
async function accountFiles({ layout, mustKubectl }: Cluster, podName: string): Promise<string> {
  const { account, namespace } = fleetRelease;
  const folder = join(layout.dir, `account-${podName}`);
  mkdirSync(folder);
  const bound = ["--bound-object-kind=Pod", `--bound-object-name=${podName}`, "--duration=2h"];
  const token = await mustKubectl(["create", "token", account, `--namespace=${namespace}`, ...bound]);
  writeFileSync(join(folder, "token"), token.trim());
  writeFileSync(join(folder, "namespace"), namespace);
  copyFileSync(certificatesIn(layout.pki).ca.cert, join(folder, "ca.crt"));
  return folder;
}
