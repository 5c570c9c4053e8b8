import { relative } from "node:path";
import { nodeReady } from "../../harness/agent.ts";
import { chart, helmArgv } from "../../harness/helm.ts";
import { type HelmLab, release, startHelmLab } from "../../harness/helm-lab.ts";
import { networkArgv } from "../../harness/namespaces.ts";
import { servedStore } from "../../harness/registry.ts";
import { waitFor } from "../../harness/wait.ts";
import { addImage } from "../images/build.ts";
import type { Kit } from "../tools/kits.ts";
import { throughLink } from "./through-link.ts";
import { startDns } from "../../harness/dns.ts";
import { ownPodAddresses } from "../../harness/edge-machine.ts";
import { createScreen, type Screen } from "./screen.ts";
import type { Steps } from "./steps.ts";
import { namespace, tour } from "./tour.ts";

const { name, node, secret } = release;
const inNamespace = ["--namespace", release.namespace];

/** How the demo is wanted. */
export interface HelmDemoOptions {
  /** Leave the cluster and its nodes running afterwards. */
  readonly keep: boolean;
  readonly kit: Kit;
  /** Starting the cluster is the last of them. */
  readonly steps: Steps;
}

/** Shows what a user of a cluster does: helm makes a machine elsewhere a node, pods run there, helm takes it away again. The
 *  cluster's first node is run by the real kubelet, and graftlet is a Pod on it. Throws when something is not as it should be. */
export async function demoOfHelm({ keep, kit, steps }: HelmDemoOptions): Promise<void> {
  const began = performance.now();
  steps.begin("starting a cluster, its first node and a machine elsewhere");
  await using lab = await startHelmLab("helm-demo", { kit, say: steps.note });
  ownPodAddresses(lab.edge.layout);
  steps.note("making the cluster's DNS and a database's image");
  await startDns(lab.cluster);
  for (const { layout } of [lab.cluster, lab.edge]) await addImage("library/postgres", servedStore(layout), steps.note);
  steps.end();
  const screen = screenOf(lab);
  screen.heading("a cluster, a machine that is reached over SSH alone, and its key in a Secret");
  await screen.show("kubectl", ["get", "nodes", "-o", "wide"]);
  await screen.show("kubectl", [...inNamespace, "get", "secret", secret]);
  await install(lab, screen);
  await tour(screen, node);
  await throughLink(screen);
  screen.heading("helm test: a pod on the node, its log read back");
  await screen.show("helm", ["test", name, ...inNamespace, "--timeout=120s"]);
  await replace(screen);
  if (keep) return stay(lab, screen);
  screen.heading("helm uninstall: the pods are deleted, the machine is cleaned, the node goes");
  await screen.show("helm", ["uninstall", name, ...inNamespace, "--timeout=180s"]);
  await screen.show("kubectl", ["get", "nodes"]);
  screen.heading("done");
  screen.note(`${Math.round((performance.now() - began) / 1000)} s. Removing the cluster. (KEEP=1 leaves it running.)`);
}

async function install(lab: HelmLab, screen: Screen): Promise<void> {
  screen.heading("helm install");
  // What --values says is how a pretended machine differs from a real one.
  const told = lab.told.map((arg) => (arg === chart ? relative(process.cwd(), chart) : arg));
  const demo = [
    "--set=nodes[0].ssh.network=tunneled",
    "--set-string=nodes[0].labels.graftlet\\.dev/demo=true",
    "--set=onUninstall=drain",
  ];
  await screen.show("helm", ["install", ...told, ...demo]);
  await waitFor("the node", async () => (await lab.cluster.get("node", node)) !== undefined);
  await nodeReady(lab.cluster, node);
  screen.heading("the kubelet API has a certificate, which the release has approved for its own node");
  await screen.show("kubectl", ["wait", "--for=condition=KubeletReachable", `node/${node}`, "--timeout=90s"]);
  await screen.show("kubectl", ["get", "csr"]);
}

async function replace(screen: Screen): Promise<void> {
  screen.heading("another Pod of graftlet's: the node's pods run on");
  const deployment = `deployment/${name}-graftlet`;
  const pods = ["--namespace", namespace, "get", "pods", "-o", "wide"];
  await screen.show("kubectl", [...inNamespace, "rollout", "restart", deployment]);
  await screen.show("kubectl", [...inNamespace, "rollout", "status", deployment, "--timeout=90s"]);
  const { output } = await screen.show("kubectl", pods);
  if (!/web-\S+\s+1\/1\s+Running\s+0 /.test(output)) throw new Error("the demo expected the pods to run on");
  await screen.show("kubectl", ["--namespace", namespace, "exec", "deployment/web", "--", "hostname"]);
}

function stay(lab: HelmLab, screen: Screen): void {
  lab.release();
  screen.heading("it stays up");
  screen.note(`  use it     eval "$(node test/cluster/cluster.ts env --name helm-demo)"; kubectl get nodes
  remove it  for name in helm-demo helm-demo-edge; do node test/cluster/cluster.ts down --name $name; done`);
}

function screenOf({ cluster, program }: HelmLab): Screen {
  const kubectl = [cluster.tools.path("kubectl"), `--kubeconfig=${cluster.adminKubeconfig}`];
  return createScreen({
    argv: (asked, args) => {
      if (asked === "helm") return helmArgv(cluster, program, args);
      return networkArgv(
        cluster.layout,
        asked === "kubectl" ? [...kubectl, ...args] : [cluster.tools.path(asked), ...args],
      );
    },
  });
}
