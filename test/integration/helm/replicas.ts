import { setTimeout as sleep } from "node:timers/promises";
import { type GraftedNode, isReady, isReadyWithOwner } from "../../../src/fleet/grafted-node.ts";
import type { Node, Pod } from "../../../src/objects.ts";
import type { HelmLab } from "../../harness/helm-lab.ts";
import { release } from "../../harness/helm-lab.ts";
import { listProcesses, textOf } from "../../harness/processes.ts";
import { inNamespace, releaseOf } from "./release.ts";

/** What an object says about the Pod that serves it. */
export interface Owned {
  readonly name: string;
  readonly replica: string;
  readonly epoch: number;
  readonly isReady: boolean;
}

/** The replicas of a release, and the machines that they share, each with a pod named by `podOn`. */
export interface Replicas {
  /** The Pods of the release. */
  pods(): Promise<readonly Pod[]>;
  list(): Promise<readonly Owned[]>;
  /** What the objects and the replicas say, for a failure's message. */
  explain(): Promise<string>;
  /** Waits until each machine is Ready and is served by a running Pod. @returns the owners. */
  untilShared(holds: (owned: readonly Owned[]) => boolean, timeoutMs?: number): Promise<readonly Owned[]>;
  /** Waits until a machine's kubelet API answers, which only its owner serves. */
  untilAnswers(machine: string): Promise<unknown>;
  scale(count: number): Promise<unknown>;
  /** ID and restarts of each pod's container, in the order of the machines. */
  containers(): Promise<readonly string[]>;
}

export function replicasOf(lab: HelmLab, machines: readonly string[]): Replicas {
  const { cluster } = lab;
  const { pods } = releaseOf(lab);
  const list = async (): Promise<readonly Owned[]> => {
    const text = await cluster.mustKubectl(["get", "gn", inNamespace, "--output=json"]);
    const { items } = JSON.parse(text) as { readonly items: readonly GraftedNode[] };
    return items.map((object) => ({
      name: object.metadata.name,
      replica: object.status?.owner?.replica ?? "",
      epoch: object.status?.owner?.epoch ?? 0,
      // The first versions with replicas do not say which owner has written the status.
      isReady: object.status?.observedEpoch === undefined ? isReady(object.status) : isReadyWithOwner(object),
    }));
  };
  const explain = async () => {
    const logs = await cluster.kubectl([
      "logs",
      inNamespace,
      "--selector=app.kubernetes.io/component=kubelet",
      "--prefix",
    ]);
    return `${JSON.stringify(await list())}\n${logs.stdout.slice(-8_000)}`;
  };
  return {
    pods,
    list,
    explain,
    untilShared: (holds, timeoutMs = 60_000) =>
      cluster.waitFor(
        "all machines to be Ready with their new owners",
        async () => {
          const owned = await list();
          const running = new Set((await pods()).filter(isRunning).map(({ metadata: { name } }) => name));
          const isServed = ({ replica, isReady }: Owned) => isReady && running.has(replica);
          return owned.length === machines.length && owned.every(isServed) && holds(owned) && owned;
        },
        { timeoutMs, explain },
      ),
    untilAnswers: (machine) =>
      cluster.waitFor(
        `${machine} to be served by its new owner`,
        async () => (await cluster.kubectl(["exec", `on-${machine}`, "--", "true"])).code === 0,
        { timeoutMs: 60_000, explain },
      ),
    scale: (count) =>
      cluster.mustKubectl(["scale", `deployment/${release.name}-graftlet`, inNamespace, `--replicas=${count}`]),
    async containers() {
      const found = await Promise.all(machines.map((name) => cluster.get<Pod>("pod", `on-${name}`)));
      return found.map((pod) => {
        const [container] = pod?.status?.containerStatuses ?? [];
        return `${container?.containerID} ${container?.restartCount}`;
      });
    },
  };
}

export function isRunning({ metadata, status }: Pod): boolean {
  return status?.phase === "Running" && metadata.deletionTimestamp === undefined;
}

/** Processes of a Pod's containers. */
export function processesOf({ metadata: { uid } }: Pod): readonly number[] {
  const inPod = ({ pid }: { readonly pid: number }) => textOf(`/proc/${pid}/cgroup`).includes(uid);
  return listProcesses()
    .filter(inPod)
    .map(({ pid }) => pid);
}

/** Watches the Nodes of the machines until it is disposed. */
export function watchReady({ cluster }: HelmLab, machines: readonly string[]) {
  const seen = new Set<string>();
  const stop = new AbortController();
  const watching = (async () => {
    while (!stop.signal.aborted) {
      for (const name of machines) {
        const ready = (await cluster.get<Node>("node", name))?.status?.conditions?.find(({ type }) => type === "Ready");
        if (ready?.status !== "True") seen.add(`${name} ${ready?.status} ${ready?.reason}`);
      }
      await sleep(500);
    }
  })();
  return {
    /** Names, statuses and reasons of Nodes that were not Ready. */
    async notReady(): Promise<readonly string[]> {
      stop.abort();
      await watching;
      return [...seen];
    },
    [Symbol.dispose]: () => stop.abort(),
  };
}
