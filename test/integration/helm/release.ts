import assert from "node:assert/strict";
import type { CertificateSigningRequest, Node, Pod, Secret } from "../../../src/objects.ts";
import { nodeReady } from "../../harness/agent.ts";
import { type HelmLab, release } from "../../harness/helm-lab.ts";
import { listProcesses, textOf } from "../../harness/processes.ts";
import { reachIn } from "./streams.ts";
import { standing, workload } from "./workload.ts";

const { name, namespace, node: nodeName } = release;

/** What kubectl is told of the release's namespace. */
export const inNamespace = `--namespace=${namespace}`;

/** Kinds of all that a release may be made of. */
const kinds = [
  "deployments,replicasets,pods,jobs,configmaps,secrets,services,endpointslices",
  "serviceaccounts,roles,rolebindings,clusterroles,clusterrolebindings",
  "validatingadmissionpolicies,validatingadmissionpolicybindings",
].join(",");

/** The release of a lab, looked at as its administrator does. */
export interface Release {
  node(name?: string): Promise<Node | undefined>;
  requests(): Promise<readonly CertificateSigningRequest[]>;
  /** The Pods of the Deployment. */
  pods(): Promise<readonly Pod[]>;
  /** Kills the processes of its Pod at once, and returns the Pod as it was. */
  kill(): Promise<Pod>;
  /** The log of the Deployment. */
  log(): Promise<string>;
  /** Installs it with these arguments more, and waits for its first node. */
  install(...more: readonly string[]): Promise<string>;
  /** Applies the workload, and waits until it runs. */
  runWorkload(): Promise<void>;
  /** Each of the ways by which kubectl reaches into the workload's pods, once. */
  reachIn(): Promise<void>;
  /** Does something that gives graftlet another Pod, and checks that the node's pods do not notice, and that kubectl reaches
   *  them after. `settled` says when the change has arrived. */
  unnoticed(change: () => Promise<unknown>, settled?: () => Promise<boolean>): Promise<void>;
  /** Checks that no object of it is left. */
  isGone(): Promise<void>;
}

/** Name of the Secret with a node's certificates. */
export function certificateSecret(of: string): string {
  return `${name}-graftlet-certificates.${of}`;
}

/** Moves a node's certificates to the Secret that all nodes share, as the previous version kept them.
 *  @returns checks that the node has a Secret with the same certificates again, and that a roll-back would still find them. */
export async function shareCertificates({ cluster }: HelmLab): Promise<() => Promise<void>> {
  const shared = `${name}-graftlet-certificates`;
  const own = certificateSecret(nodeName);
  const dataOf = async (secret: string) => (await cluster.get<Secret>("secret", secret, namespace))?.data ?? {};
  const write = (secret: string, data: Readonly<Record<string, string | null>>) => {
    const patch = `--patch=${JSON.stringify({ data })}`;
    return cluster.mustKubectl(["patch", "secret", secret, inNamespace, "--type=merge", patch]);
  };
  const kept = await dataOf(own);
  assert.deepEqual(Object.keys(kept).toSorted(), [`${nodeName}.kubelet-client.pem`, `${nodeName}.kubelet-server.pem`]);
  await write(shared, kept);
  await write(own, Object.fromEntries(Object.keys(kept).map((key) => [key, null])));
  return async () => {
    assert.deepEqual(await dataOf(own), kept);
    assert.deepEqual(await dataOf(shared), kept);
  };
}

export function releaseOf(lab: HelmLab): Release {
  const { cluster } = lab;
  const listed = async <T>(...args: readonly string[]): Promise<readonly T[]> =>
    (JSON.parse(await cluster.mustKubectl(["get", ...args, "--output=json"])) as { items: T[] }).items;
  const log = async () => (await cluster.kubectl(["logs", inNamespace, `deployment/${name}-graftlet`])).stdout;
  const requests = () => listed<CertificateSigningRequest>("csr");
  const pods = () => listed<Pod>("pods", inNamespace, "--selector=app.kubernetes.io/component=kubelet");
  const node = (of: string = nodeName) => cluster.get<Node>("node", of);
  const leftovers = () =>
    cluster.mustKubectl([
      "get",
      kinds,
      "--all-namespaces",
      `--selector=app.kubernetes.io/instance=${name}`,
      "--output=name",
    ]);
  return {
    node,
    requests,
    pods,
    log,
    async kill() {
      const [pod] = await pods();
      assert.ok(pod);
      for (const { pid } of listProcesses())
        if (textOf(`/proc/${pid}/cgroup`).includes(pod.metadata.uid)) process.kill(pid, "SIGKILL");
      return pod;
    },
    async install(...more) {
      const said = await lab.mustHelm(["install", ...lab.told, ...more]);
      await cluster.waitFor("the node", async () => (await node()) !== undefined, { explain: log });
      await nodeReady(cluster, nodeName);
      return said;
    },
    async runWorkload() {
      await cluster.apply(workload);
      await cluster.mustKubectl(["rollout", "status", "deployment/web", "--timeout=90s"], { timeoutMs: 100_000 });
      await cluster.mustKubectl(["wait", "--for=condition=Complete", "job/greeter", "--timeout=55s"]);
      await cluster.mustKubectl(["wait", "--for=condition=Ready", "pod/parrot", "pod/stray", "--timeout=55s"]);
    },
    reachIn: () => reachIn(cluster, log),
    async unnoticed(change, settled = () => Promise.resolve(true)) {
      const before = await standing(cluster);
      const asked = (await requests()).length;
      const { uid: nodeUid } = (await node())?.metadata ?? {};
      const old = (await pods())[0]?.metadata.uid;
      await change();
      await cluster.waitFor(
        "another Pod of graftlet's to serve the node",
        async () => {
          const [pod, ...others] = await pods();
          if (others.length > 0 || pod?.metadata.uid === old || pod?.status?.phase !== "Running") return false;
          return await settled();
        },
        { timeoutMs: 90_000, explain: log },
      );
      await nodeReady(cluster, nodeName);
      await reachIn(cluster, log);
      assert.deepEqual(await standing(cluster), before);
      assert.equal((await requests()).length, asked, "another certificate was asked for");
      assert.equal((await node())?.metadata.uid, nodeUid);
    },
    async isGone() {
      await cluster.waitFor("nothing to be left of the release", async () => (await leftovers()) === "", {
        explain: leftovers,
      });
      const rest = ["get", "secrets,configmaps", inNamespace, "--output=name"];
      assert.equal(await cluster.mustKubectl(rest), `secret/${release.secret}\nconfigmap/kube-root-ca.crt\n`);
    },
  };
}
