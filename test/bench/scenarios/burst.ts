import { setTimeout as sleep } from "node:timers/promises";
import { memoryOf } from "../../harness/holdings.ts";
import type { Api } from "../../harness/api.ts";
import { type Scenario, namesOf } from "../bench-lab.ts";
import { end, idlePod, live, numbered } from "../moments.ts";
import { cpuSeconds } from "../usage.ts";

/** Pods that are wanted at once. */
export const burstSize = 50;
/** Between the last that runs and the deletion of all, milliseconds. */
const pauseMs = 3_000;
/** Between two questions whether the agent is well, milliseconds. */
const everyMs = 20;

/** Fifty pods at once: until the last of them runs, with the agent's CPU and memory and its longest silence meanwhile; and until the
 *  last is gone once all are deleted at once. */
export const burst: Scenario = async ({ cluster, pods, ledger }, { who, round, agent }) => {
  const names = numbered(namesOf("burst", { who, round }), burstSize);
  const cpu = cpuSeconds(agent.pid);
  const over = new AbortController();
  const silence = longestSilence(pods.api, cluster.nodeName, over.signal);
  const began = performance.now();
  const lives = await Promise.all(names.map((name) => live(pods, name, idlePod(cluster.nodeName))));
  ledger.note("burst", who, round, (Math.max(...lives.map(({ shown }) => shown)) - began) / 1000);
  over.abort();
  ledger.note("burst silence", who, round, await silence);
  await sleep(pauseMs);
  ledger.note("burst cpu", who, round, cpuSeconds(agent.pid) - cpu);
  ledger.note("burst memory", who, round, memoryOf(agent.pid).now);
  const ended = performance.now();
  const ends = await Promise.all(names.map((name) => end(pods, name)));
  ledger.note("burst gone", who, round, (Math.max(...ends.map(({ shown }) => shown)) - ended) / 1000);
  await sleep(pauseMs);
};

/** Asks the kubelet API for /healthz, through the API server, again and again. @returns the longest wait for an answer,
 *  milliseconds. */
async function longestSilence(api: Api, nodeName: string, over: AbortSignal): Promise<number> {
  let longest = 0;
  while (!over.aborted) {
    const asked = performance.now();
    await api.text(`/api/v1/nodes/${nodeName}/proxy/healthz`);
    longest = Math.max(longest, performance.now() - asked);
    await sleep(everyMs);
  }
  return longest;
}
