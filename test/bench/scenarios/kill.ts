import { setTimeout as sleep } from "node:timers/promises";
import { containerId, firstProcess, statusOf } from "../../harness/pods.ts";
import { type Scenario, namesOf } from "../bench-lab.ts";
import { clear, idlePod, live, moment, numbered } from "../moments.ts";

/** Pods of a turn. */
const count = 10;
/** Between two kills, milliseconds: an agent that looks around every second is met at any moment of it. */
const apartMs = 270;

/** Main processes killed one after another: until the API server shows the end of their container. */
export const kill: Scenario = async ({ cluster, pods, ledger }, { who, round }) => {
  const names = numbered(namesOf("kill", { who, round }), count);
  await Promise.all(names.map((name) => live(pods, name, idlePod(cluster.nodeName))));
  for (const name of names) {
    await sleep(apartMs);
    const before = await pods.ready(name);
    const id = containerId(before);
    const seen = moment(pods, name, "to show the end of its container", (pod) => {
      const { state, lastState } = statusOf(pod) ?? {};
      const ended = state?.terminated ?? lastState?.terminated;
      return ended?.containerID?.endsWith(id) === true;
    });
    const killed = performance.now();
    process.kill(firstProcess(cluster, before), "SIGKILL");
    ledger.note("kill", who, round, (await seen) - killed);
  }
  await clear(pods, names);
};
