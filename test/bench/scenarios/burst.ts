import { setTimeout as sleep } from "node:timers/promises";
import { type Scenario, namesOf } from "../bench-lab.ts";
import { end, idlePod, live, numbered } from "../moments.ts";

/** Pods that are wanted at once. */
export const burstSize = 50;
/** Between the last that runs and the deletion of all, milliseconds. */
const pauseMs = 3_000;

/** Fifty pods at once: until the last of them runs; and until the last is gone once all are deleted at once. */
export const burst: Scenario = async ({ cluster, pods, ledger }, { who, round }) => {
  const names = numbered(namesOf("burst", { who, round }), burstSize);
  const began = performance.now();
  const lives = await Promise.all(names.map((name) => live(pods, name, idlePod(cluster.nodeName))));
  ledger.note("burst", who, round, (Math.max(...lives.map(({ shown }) => shown)) - began) / 1000);
  await sleep(pauseMs);
  const ended = performance.now();
  const ends = await Promise.all(names.map((name) => end(pods, name)));
  ledger.note("burst gone", who, round, (Math.max(...ends.map(({ shown }) => shown)) - ended) / 1000);
  await sleep(pauseMs);
};
