import { setTimeout as sleep } from "node:timers/promises";
import { type Scenario, namesOf } from "../bench-lab.ts";
import { end, idlePod, live, numbered } from "../moments.ts";

/** Pods of a turn. */
const count = 15;
/** Between two deletions, milliseconds: an agent that looks around every second is met at any moment of it. */
const apartMs = 170;

/** Pods deleted one after another: from the wish to the object's end. Their programs end as soon as they are asked to. */
export const deletion: Scenario = async ({ cluster, pods, ledger }, { who, round }) => {
  const names = numbered(namesOf("delete", { who, round }), count);
  await Promise.all(names.map((name) => live(pods, name, idlePod(cluster.nodeName))));
  for (const name of names) {
    await sleep(apartMs);
    const { asked, shown } = await end(pods, name);
    ledger.note("delete", who, round, shown - asked);
  }
};
