import { countPodWrites } from "../api-writes.ts";
import { type BenchLab, type Scenario, type Turn, namesOf } from "../bench-lab.ts";
import { clear, idlePod, live, numbered } from "../moments.ts";

/** Pods of a turn; the two turns of an agent make thirty. */
const count = 15;

/** Pods one after another, from the wish to Running. @returns what the names of these pods begin with. */
export async function startsOf(
  { cluster, pods, ledger }: BenchLab,
  { who, round }: Pick<Turn, "who" | "round">,
): Promise<string> {
  const prefix = namesOf("start", { who, round });
  const names = numbered(prefix, count);
  for (const name of names) {
    const { asked, shown } = await live(pods, name, idlePod(cluster.nodeName));
    ledger.note("start", who, round, shown - asked);
  }
  await clear(pods, names);
  return prefix;
}

/** Pods one after another, and what the agent writes of each until it is gone. */
export const start: Scenario = async (lab, { who, round }) => {
  const written = countPodWrites(lab.cluster);
  const { pods, events, tokens } = written(await startsOf(lab, { who, round }));
  lab.ledger.note("writes", who, round, (pods + events + tokens) / count);
  lab.ledger.note("status writes", who, round, pods / count);
};
