import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { parse, stringify } from "yaml";
import { type Kit, testKit } from "../cluster/tools/kits.ts";
import { type Agent, startGraftlet, startKubelet } from "./agent.ts";
import { type Cluster, type ServedImage, startCluster } from "./cluster.ts";
import { type EdgeMachine, startEdgeMachine } from "./edge-machine.ts";
import { chart, findHelm, type Helm, helmOf } from "./helm.ts";
import { graftletArchive } from "./image.ts";
import { findTools, type Tools } from "./tools.ts";

/** Where the release is installed, and what it and its node are called. */
export const release = { name: "edge", namespace: "graftlet", node: "edge-1", secret: "edge-1-ssh" } as const;

/** The label of a namespace that says which pods it takes. */
export const podSecurity = "pod-security.kubernetes.io/enforce";

/** A cluster as a user has it: a first node that runs pods, a machine elsewhere that shall become a node, and helm. */
export interface HelmLab extends Helm, AsyncDisposable {
  readonly cluster: Cluster;
  readonly first: Agent;
  readonly edge: EdgeMachine;
  /** The file of values that says how the machine differs from a real one. */
  readonly values: string;
  /** `helm install` or `upgrade` of the chart with what a user says: the machine's name, address and Secret. */
  readonly told: readonly string[];
  /** Lets all of it outlive this process: disposing it, or dying, does nothing any more. */
  release(): void;
}

/** What of a lab differs. */
export interface HelmLabOptions {
  /** What runs the first node: the real kubelet unless given. */
  readonly firstNode?: "kubelet" | "graftlet";
  /** The API server writes down what the release's accounts ask. */
  readonly audited?: boolean;
  /** The namespace, and in it the Secret of the machine's login, are not there yet. */
  readonly bare?: boolean;
  /** The cluster's registries do not have graftlet's image. */
  readonly withoutImage?: boolean;
  /** The values leave the network of the machine's pods to it; it is isolated otherwise. */
  readonly networkLeftOut?: boolean;
  /** The programs and images that it is brought up with; all that tests use unless given. */
  readonly kit?: Kit;
  /** The machine, by the runtime of its pods: containerd unless given. */
  readonly machine?: "ssh" | "ssh-docker";
  /** Directory of another checkout: the registries serve its image, too, with the tag `otherTag`. */
  readonly other?: string | undefined;
  readonly say?: (line: string) => void;
}

/** Tag of another checkout's image. */
export const otherTag = "other";

/** Starts all of it, with the Secret of the machine's login in the release's namespace unless that is bare; nothing is installed
 *  yet. */
export async function startHelmLab(
  name: string,
  {
    firstNode = "kubelet",
    audited = false,
    bare = false,
    withoutImage = false,
    networkLeftOut = false,
    kit = testKit,
    machine = "ssh",
    other,
    say = () => {},
  }: HelmLabOptions = {},
): Promise<HelmLab> {
  await using stack = new AsyncDisposableStack();
  const tools = await findTools(say, undefined, kit);
  const program = await findHelm();
  const own = withoutImage ? [] : [await imageOf(undefined, tools, say)];
  const images = other === undefined ? own : [...own, await imageOf(other, tools, say)];
  const cluster = stack.use(
    await startCluster({
      name,
      provider: "cri",
      kit,
      say,
      ...(images.length > 0 && { images }),
      ...(audited && { audited: `system:serviceaccounts:${release.namespace}` }),
    }),
  );
  say("starting the machine that shall become a node");
  const edge = stack.use(await startEdgeMachine(cluster, `${name}-edge`, { kit, provider: machine }));
  const first = await (firstNode === "kubelet" ? startKubelet : startGraftlet)(cluster);
  let released = false;
  stack.defer(() => (released ? undefined : first[Symbol.asyncDispose]()));
  const letGo = (): void => {
    released = true;
    cluster.release();
    edge.release();
  };
  if (!bare) await cluster.apply(prepared(edge));
  const values = join(cluster.layout.dir, "values.yaml");
  const { port } = edge.ssh;
  const ssh = { port, ...(!networkLeftOut && { network: "isolated" }) };
  writeFileSync(values, stringify({ nodes: [{ ssh, kubeletConfiguration: edge.kubeletConfiguration }] }));
  const told = [
    release.name,
    chart,
    `--namespace=${release.namespace}`,
    `--values=${values}`,
    `--set=nodes[0].name=${release.node}`,
    `--set=nodes[0].ssh.host=${String(edge.ssh["host"])}`,
    `--set=nodes[0].ssh.existingSecret=${release.secret}`,
  ];
  const whole = stack.move();
  return {
    cluster,
    first,
    edge,
    values,
    told,
    ...helmOf(cluster, program),
    release: letGo,
    [Symbol.asyncDispose]: () => whole.disposeAsync(),
  };
}

/** Objects that a user makes before the first install. */
function prepared(edge: EdgeMachine): readonly object[] {
  const labels = { [podSecurity]: "restricted" };
  return [{ apiVersion: "v1", kind: "Namespace", metadata: { name: release.namespace, labels } }, loginSecret(edge)];
}

/** The Secret of a machine's login. */
export function loginSecret({ login }: EdgeMachine): object {
  return {
    apiVersion: "v1",
    kind: "Secret",
    metadata: { name: release.secret, namespace: release.namespace },
    type: "kubernetes.io/ssh-auth",
    stringData: login,
  };
}

/** This checkout's image, under the name that its chart has, or that of another checkout. */
async function imageOf(other: string | undefined, tools: Tools, say: (line: string) => void): Promise<ServedImage> {
  const archive = await graftletArchive(tools, say, { checkout: other });
  return { name: "graftlet/graftlet", tags: [other === undefined ? version() : otherTag], archive };
}

/** The version of graftlet that the chart installs. */
function version(): string {
  const { appVersion } = parse(readFileSync(join(chart, "Chart.yaml"), "utf8")) as { appVersion: string };
  return appVersion;
}
