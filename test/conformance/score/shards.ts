import { type ListedTest, type SuiteName } from "../list.ts";
import { wantsCriProxy } from "../node-agent.ts";

/** Tests that are run together, on a machine brought up for them. */
export interface Shard {
  readonly name: string;
  readonly suite: SuiteName;
  /** One test after the other: they change the node. */
  readonly serial: boolean;
  readonly tests: readonly ListedTest[];
}

/** The kinds of tests, in the order in which they are worth their time, and how many make a shard at most. */
const kinds = { plain: 200, serial: 60, slow: 200 } as const;
type Kind = keyof typeof kinds;

/** Splits tests into shards of a suite, a kind and a group, the plain ones first. Names tell shards apart. */
export function shardsOf(tests: readonly ListedTest[]): readonly Shard[] {
  const shards: Shard[] = [];
  for (const kind of ["plain", "serial", "slow"] as const) {
    const groups = Map.groupBy(
      tests.filter((test) => kindOf(test) === kind),
      (test) => `${test.suite}-${kind}-${groupOf(test)}`,
    );
    for (const [group, members] of [...groups].toSorted(([a], [b]) => rank(a) - rank(b)))
      for (const [index, part] of chunks(members, kinds[kind]).entries())
        shards.push({
          name: `${group}-${index + 1}`,
          suite: part[0]?.suite ?? "e2e",
          serial: kind === "serial",
          tests: part,
        });
  }
  return shards;
}

/** Tests that change the node, or want it for themselves, are serial; of the others the slow ones are told apart. */
function kindOf({ name }: ListedTest): Kind {
  if (/\[(?:Serial|Disruptive)\]/.test(name)) return "serial";
  return name.includes("[Slow]") ? "slow" : "plain";
}

/** Tests that are many of their kind, or want flags of the suite, make shards of their own. */
function groupOf({ name }: ListedTest): string {
  if (wantsCriProxy(name)) return "proxy";
  if (name.includes("In-tree Volumes")) return "volumes";
  if (name.includes("InPlace")) return "resize";
  return name.startsWith("[sig-storage]") ? "storage" : "others";
}

/** Small groups before large ones. */
function rank(group: string): number {
  return ["others", "proxy", "storage", "resize", "volumes"].findIndex((name) => group.endsWith(name));
}

function chunks<T>(all: readonly T[], size: number): readonly (readonly T[])[] {
  const count = Math.ceil(all.length / size);
  const each = Math.ceil(all.length / Math.max(1, count));
  return Array.from({ length: count }, (_, index) => all.slice(index * each, (index + 1) * each));
}
