import { setTimeout as sleep } from "node:timers/promises";
import type { Chance } from "../../harness/chance.ts";
import type { HelmLab } from "../../harness/helm-lab.ts";
import type { Pod } from "../../../src/objects.ts";
import { podOn } from "./grafted-machine.ts";

/** Longest time until a pod runs, or is gone, whatever befalls the replicas and the API server meanwhile, milliseconds. */
const longestMs = 240_000;

/** Pods that come and go on machines while the replicas that serve these do. */
export interface ReplicaChurn {
  /** Ends once the present pod is gone. @returns the number of pods that ran and are gone, and what went wrong. */
  stop(): Promise<{ readonly ended: number; readonly failures: readonly string[] }>;
}

/** Creates one pod after the other on machines that are drawn by chance, waits until each runs, and deletes it. A pod that is being started,
 *  or ended, when its machine changes its owner is started, or ended, by the next one. */
export function churnPods({ cluster }: HelmLab, machines: readonly string[], { pick }: Chance): ReplicaChurn {
  const failures: string[] = [];
  let ended = 0;
  const stop = new AbortController();
  /** The API server may be away: asks until it answers. */
  const until = async (what: string, holds: () => Promise<boolean>): Promise<boolean> => {
    const from = performance.now();
    while (performance.now() - from < longestMs) {
      if (await holds().catch(() => false)) return true;
      await sleep(500);
    }
    failures.push(`${what}: not within ${longestMs / 1_000} s`);
    return false;
  };
  const comeAndGo = async (name: string, machine: string): Promise<void> => {
    const pod = { ...podOn(machine), metadata: { name } };
    const find = () => cluster.get<Pod>("pod", name);
    const isCreated = async () => (await cluster.apply([pod]), true);
    const isRunning = async () => (await find())?.status?.phase === "Running";
    const isDeleted = async () =>
      (await cluster.kubectl(["delete", "pod", name, "--wait=false", "--ignore-not-found"])).code === 0;
    const isGone = async () => (await find()) === undefined;
    const about = `${name} on ${machine}`;
    if (!(await until(`${about} is created`, isCreated)) || !(await until(`${about} runs`, isRunning))) return;
    if ((await until(`${about} is deleted`, isDeleted)) && (await until(`${about} is gone`, isGone))) ended += 1;
  };
  const working = (async () => {
    for (let number = 1; !stop.signal.aborted && failures.length === 0; number += 1)
      await comeAndGo(`churn-${number}`, pick(machines));
  })();
  return {
    async stop() {
      stop.abort();
      await working;
      return { ended, failures };
    },
  };
}
