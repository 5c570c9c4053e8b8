import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import type { Pod } from "../../../src/objects.ts";
import type { Chance } from "../../harness/chance.ts";
import type { HelmLab } from "../../harness/helm-lab.ts";
import { agentAddresses } from "../../harness/agent-machine.ts";
import { addresses } from "../../harness/namespaces.ts";
import { must, signalProcess, textOf } from "../../harness/processes.ts";
import { readState } from "../../harness/state.ts";
import { inNamespace } from "./release.ts";
import { isRunning, processesOf, type Replicas } from "./replicas.ts";

/** Something that goes wrong with the replicas of a release, the way to what they need, or the machines. */
export interface ReplicaFault {
  readonly name: string;
  /** How long it lasts at least and at most, seconds; 0 if it is over at once. */
  readonly lasts: readonly [least: number, most: number];
  /** True if the cluster cannot be asked meanwhile. */
  readonly isClustersOwn?: boolean;
  /** Causes it. @returns what ends it. */
  begin(): Promise<() => Promise<unknown>>;
}

const over = () => Promise.resolve();

/** @param longestSeconds that a fault lasts. */
export function replicaFaults(
  lab: HelmLab,
  { pods, scale }: Replicas,
  { pick }: Chance,
  longestSeconds: number,
): readonly ReplicaFault[] {
  const { cluster, edge } = lab;
  const anyPod = async (): Promise<Pod> => pick((await pods()).filter(isRunning));
  const upTo = (seconds: number): number => Math.min(seconds, longestSeconds);
  const cutOff = (name: string, to: readonly string[]): ReplicaFault => ({
    name,
    lasts: [5, upTo(90)],
    async begin() {
      const pod = await anyPod();
      const [pid] = processesOf(pod);
      assert.ok(pid !== undefined, `${pod.metadata.name} has no process`);
      const filter = (does: "-I" | "-D") =>
        Promise.all(
          to.map((address) =>
            must(["nsenter", `--target=${pid}`, "--net", "iptables", does, "OUTPUT", "-d", address, "-j", "DROP"]),
          ),
        );
      await filter("-I");
      return () => filter("-D");
    },
  });
  const api = [addresses.node, addresses.apiServerService];
  const machine = [agentAddresses.target];
  return [
    {
      name: "kills a replica's process",
      lasts: [0, 0],
      async begin() {
        const pids = processesOf(await anyPod()).filter((pid) => textOf(`/proc/${pid}/comm`) !== "pause\n");
        assert.ok(pids.length > 0, "the Pod has no process");
        for (const pid of pids) signalNow(pid, "SIGKILL");
        return over;
      },
    },
    {
      name: "kills all processes of a Pod",
      lasts: [0, 0],
      async begin() {
        for (const pid of processesOf(await anyPod())) signalNow(pid, "SIGKILL");
        return over;
      },
    },
    {
      name: "deletes a Pod by force",
      lasts: [0, 0],
      async begin() {
        const { metadata } = await anyPod();
        await cluster.mustKubectl(["delete", "pod", metadata.name, inNamespace, "--grace-period=0", "--force"]);
        return over;
      },
    },
    {
      name: "stops a replica's process for a while",
      lasts: [5, upTo(90)],
      async begin() {
        const pids = processesOf(await anyPod());
        for (const pid of pids) signalNow(pid, "SIGSTOP");
        return async () => {
          for (const pid of pids) signalNow(pid, "SIGCONT");
        };
      },
    },
    cutOff("cuts a replica off from the API server", api),
    cutOff("cuts a replica off from the machines", machine),
    cutOff("cuts a replica off from everything", [...api, ...machine]),
    {
      name: "cuts all replicas off from the machines",
      lasts: [5, upTo(45)],
      async begin() {
        await edge.unplug();
        return () => edge.plug();
      },
    },
    {
      name: "scales down to one replica, and up again",
      lasts: [5, 20],
      async begin() {
        await scale(1);
        return () => scale(3);
      },
    },
    {
      name: "rolls all replicas out",
      lasts: [0, 0],
      async begin() {
        const [deployment] = (await cluster.mustKubectl(["get", "deployments", inNamespace, "--output=name"])).split(
          "\n",
        );
        assert.ok(deployment);
        await cluster.mustKubectl(["rollout", "restart", deployment, inNamespace]);
        return () =>
          cluster.mustKubectl(["rollout", "status", deployment, inNamespace, "--timeout=240s"], { timeoutMs: 250_000 });
      },
    },
    {
      name: "stops the API server for a while",
      lasts: [10, upTo(300)],
      isClustersOwn: true,
      async begin() {
        const server = readState(cluster.layout)?.daemons["kube-apiserver"];
        assert.ok(server && signalProcess(server, "SIGSTOP"));
        return async () => {
          signalProcess(server, "SIGCONT");
          // What was asked meanwhile is answered first.
          await sleep(2_000);
        };
      },
    },
  ];
}

/** Signals a process, which may have ended. */
function signalNow(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(pid, signal);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ESRCH") throw error;
  }
}
