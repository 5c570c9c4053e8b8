import { type Agent, startGraftlet, startKubelet } from "../../harness/agent.ts";
import { agentAddresses } from "../../harness/agent-machine.ts";
import { startCluster } from "../../harness/cluster.ts";
import { tailOf } from "../../harness/daemons.ts";
import { networkArgv } from "../../harness/namespaces.ts";
import { isRemote, runtimeDaemons } from "../../harness/runtime-daemon.ts";
import type { Kit } from "../tools/kits.ts";
import { createScreen } from "./screen.ts";
import type { Steps } from "./steps.ts";
import { namespace, nodeLabel, tour } from "./tour.ts";

/** How the demo is wanted. */
export interface DemoOptions {
  /** Leave the cluster and its node running afterwards. */
  readonly keep: boolean;
  /** Which agent makes the node; the kubelet to compare with. */
  readonly agent: "graftlet" | "kubelet";
  readonly kit: Kit;
  /** Starting the cluster and its node is the last of them. */
  readonly steps: Steps;
}

const clusterName = "demo";
const nodeName = "graftlet-demo";

/** The demo in a cluster of its own, which is gone afterwards unless `keep` is set. */
export async function demoInOwnCluster({ keep, agent, kit, steps }: DemoOptions): Promise<void> {
  const began = performance.now();
  const say = steps.note;
  steps.begin("starting a cluster and its node");
  await using cluster = await startCluster({ name: clusterName, nodeName, kit, say });
  const screen = createScreen({
    argv: (program, args) =>
      networkArgv(
        cluster.layout,
        program === "kubectl"
          ? [cluster.tools.path("kubectl"), `--kubeconfig=${cluster.adminKubeconfig}`, ...args]
          : [cluster.tools.path(program), ...args],
      ),
  });
  say(`starting ${agent} as node ${nodeName}`);
  if (isRemote(cluster.provider))
    say(
      `its machine is bare but for sshd and ${runtimeDaemons[cluster.provider].role}; graftlet runs on another one, ${cluster.agentAddress}, that shares no files with it, and logs in at ${agentAddresses.target}`,
    );
  const start = agent === "graftlet" ? startGraftlet : startKubelet;
  const running: Agent = await start(cluster, { args: [`--node-labels=${nodeLabel}`] });
  steps.end();
  try {
    await tour(screen, nodeName);
  } catch (error) {
    console.error(`the end of ${agent}'s log:\n${tailOf(running.logFile, 20)}\n`);
    throw error;
  }
  screen.heading("done");
  screen.note(
    `A real scheduler placed the pods, a real ${runtimeDaemons[cluster.provider].role} ran them through ${agent}${isRemote(cluster.provider) ? " over SSH" : ""}; ${Math.round((performance.now() - began) / 1000)} s.`,
  );
  if (!keep) {
    screen.note("Removing the cluster. (make demo KEEP=1 leaves it running.)");
    return;
  }
  cluster.release();
  screen.note(`It stays up.
  use it     eval "$(node test/cluster/cluster.ts env --name ${cluster.name})"; kubectl get pods --namespace ${namespace} -o wide
  its log    ${running.logFile}
  remove it  node test/cluster/cluster.ts down --name ${cluster.name}`);
}
