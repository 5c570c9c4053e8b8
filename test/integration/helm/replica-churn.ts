import { setTimeout as sleep } from "node:timers/promises";
import type { Chance } from "../../harness/chance.ts";
import type { HelmLab } from "../../harness/helm-lab.ts";
import type { Pod } from "../../../src/objects.ts";
import type { ChurnKind } from "./churn-kinds.ts";

/** Timeout for each step of a pod, milliseconds: replicas and the API server may be away for most of it. */
const longestMs = 240_000;

/** Pods that come and go on machines while the replicas that serve these do. */
export interface ReplicaChurn {
  /** Ends once the present pod is gone, and one of each kind. @returns the kinds of the pods that are gone, by name, and what went wrong. */
  stop(): Promise<{ readonly ended: ReadonlyMap<string, string>; readonly failures: readonly string[] }>;
}

/** Creates one pod after the other, of each kind in turn and on random machines, waits until it may be deleted, and deletes it. Whatever is
 *  under way when a machine changes its owner has to be completed by the new owner. */
export function churnPods(
  { cluster }: HelmLab,
  machines: readonly string[],
  kinds: readonly ChurnKind[],
  { pick }: Chance,
): ReplicaChurn {
  const failures: string[] = [];
  const ended = new Map<string, string>();
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
  const comeAndGo = async (name: string, machine: string, kind: ChurnKind): Promise<void> => {
    const pod = kind.pod(name, machine);
    const find = () => cluster.get<Pod>("pod", name);
    const has = async (holds: (pod: Pod) => boolean) => {
      const found = await find();
      return found !== undefined && holds(found);
    };
    const isCreated = async () => (await cluster.apply([pod]), true);
    const hasBegun = () => has((found) => found.status?.phase === "Running" || kind.isDone(found));
    const hasActed = async () => (await kind.act?.(name), true);
    const isDeleted = async () =>
      (await cluster.kubectl(["delete", "pod", name, "--wait=false", "--ignore-not-found"])).code === 0;
    const isGone = async () => (await find()) === undefined;
    const about = `${name}, ${kind.name} on ${machine}`;
    const steps: readonly (readonly [string, () => Promise<boolean>])[] = [
      ["is created", isCreated],
      ["runs", hasBegun],
      ["is changed", hasActed],
      ["is as it should be", () => has(kind.isDone)],
      ["is deleted", isDeleted],
      ["is gone", isGone],
    ];
    for (const [what, holds] of steps) if (!(await until(`${about} ${what}`, holds))) return;
    ended.set(name, kind.name);
  };
  const working = (async () => {
    for (let number = 0; (!stop.signal.aborted || number < kinds.length) && failures.length === 0; number += 1) {
      const kind = kinds[number % kinds.length];
      if (kind) await comeAndGo(`churn-${number + 1}`, kind.machine ?? pick(machines), kind);
    }
  })();
  return {
    async stop() {
      stop.abort();
      await working;
      return { ended, failures };
    },
  };
}
