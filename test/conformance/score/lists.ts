import { type ListedTest, parseList, whole } from "../list.ts";
import type { Outcome } from "../outcomes.ts";
import { firstLine } from "../verdicts.ts";
import { capabilityOf } from "./capabilities.ts";
import { judge } from "./judgement.ts";
import { needOf } from "./needs.ts";
import type { Attempts, RunRecord } from "./records.ts";
import { reasonAgainst, type Withheld } from "./withheld.ts";

/** The committed lists of candidates, with what each begins with. */
export const lists = {
  here: "Candidates that the real kubelet passes on a machine without systemd, with cgroup v1. A second attempt confirms the first.",
  "here-slow": "As here.txt: candidates that take more than three minutes each.",
  guest:
    "Candidates that the real kubelet does not pass there, or that are not run there, with what they need of a machine.",
  others: "Candidates that the real kubelet does not pass there, for another reason: that is the last column.",
} as const;
export type ListName = keyof typeof lists;

/** Above it a test is slow, in seconds. */
const slowSeconds = 180;

/** A candidate's place in a list. */
export interface Entry extends ListedTest {
  readonly list: ListName;
  readonly capability: string;
  /** How the kubelet's attempts ended, or why there was none. */
  readonly note: string;
}

/** Where each candidate belongs. One that was not run here keeps the place that it has; one that never was run has none.
 *  @param committed the lists as they stand. */
export function placeAll(
  candidates: readonly ListedTest[],
  known: { readonly attempts: Attempts; readonly withheld: readonly Withheld[]; readonly committed: readonly Entry[] },
): readonly Entry[] {
  const committed = new Map(known.committed.map((entry) => [whole(entry), entry]));
  return candidates.flatMap((test) => {
    const before = committed.get(whole(test));
    const attempts = known.attempts.get(whole(test)) ?? [];
    return (
      placeOf(test, attempts, { reason: reasonAgainst(known.withheld, test), need: needIn(before) }) ?? before ?? []
    );
  });
}

/** What an entry says that its test needs. */
export function needIn(entry: Entry | undefined): string | undefined {
  return entry && /^(.*?); (?:passed \d|skipped)/.exec(entry.note)?.[1];
}

/** @param known why it is not run here; what is known from earlier attempts that it needs, whose whole messages are not kept. */
function placeOf(
  test: ListedTest,
  attempts: readonly Outcome[],
  { reason, need: known }: { readonly reason: string | undefined; readonly need: string | undefined },
): Entry | undefined {
  const capability = capabilityOf(test);
  const at = (list: ListName, note: string): Entry => ({ ...test, list, capability, note });
  if (reason !== undefined) return at("guest", `not run: ${reason}`);
  const judgement = judge(attempts);
  if (judgement === "not run") return undefined;
  const note = noteOf(attempts);
  if (judgement === "passes" || judgement === "passed once") {
    const passed = attempts.filter(({ state }) => state === "passed");
    const seconds = Math.max(...passed.map((outcome) => outcome.seconds));
    return at(seconds > slowSeconds ? "here-slow" : "here", note);
  }
  const need = needOf(test, lastFailure(attempts)) ?? known;
  return need === undefined ? at("others", note) : at("guest", `${need}; ${note}`);
}

/** How attempts ended: how many passed, and for a test that does not pass, why the last one did not. */
export function noteOf(attempts: readonly Outcome[]): string {
  const judgement = judge(attempts);
  const passed = attempts.filter(({ state }) => state === "passed").length;
  const count = `passed ${passed} of ${attempts.length}`;
  if (judgement === "passes" || judgement === "passed once") return count;
  return [judgement === "skipped" ? "skipped" : count, firstLine(lastFailure(attempts))].filter(Boolean).join(": ");
}

function lastFailure(attempts: readonly Outcome[]): string {
  return attempts.findLast(({ state }) => state !== "passed")?.says ?? "";
}

/** A list as its file has it: suite, name, capability and note of each test, sorted. */
export function listText(name: ListName, entries: readonly Entry[]): string {
  return entryText(
    lists[name],
    entries.filter(({ list }) => list === name),
  );
}

/** A file of entries. @param title of its first line. */
export function entryText(title: string, entries: readonly Omit<Entry, "list">[]): string {
  const lines = entries.map(({ suite, name, capability, note }) => [suite, name, capability, note].join("\t"));
  return [`# ${title}`, ...lines.toSorted(), ""].join("\n");
}

/** Reads a list's file. @throws as `parseList`. */
export function parseEntries(name: ListName, text: string): readonly Entry[] {
  return parseEntryText(text, `test/conformance/lists/${name}.txt`).map((entry) => ({ ...entry, list: name }));
}

/** Reads a file of entries. @param source the file, for errors. @throws as `parseList`. */
export function parseEntryText(text: string, source: string): readonly Omit<Entry, "list">[] {
  const rest = text.split("\n").filter((line) => line.trim() !== "" && !line.startsWith("#"));
  return parseList(text, source).map((test, index) => {
    const [, , capability = capabilityOf(test), note = ""] = rest[index]?.split("\t") ?? [];
    return { ...test, capability, note };
  });
}

/** The attempts that a list's entry speaks of, so that another machine goes on from the committed lists. How long they took is known
 *  as far as the list tells. */
export function attemptsIn({ suite, name, list, note }: Entry): readonly RunRecord[] {
  const [, passed, of, says] = /(?:^|; )passed (\d+) of (\d+)(?:: (.*))?$/.exec(note) ?? [];
  const skipped = /(?:^|; )skipped(?:: (.*))?$/.exec(note);
  const record = (state: string, index: number, why: string | undefined): RunRecord => ({
    suite,
    name,
    state,
    run: `committed ${index + 1}`,
    seconds: list === "here-slow" ? slowSeconds + 1 : 0,
    ...(why !== undefined && { says: why }),
  });
  if (skipped) return [record("skipped", 0, skipped[1])];
  return Array.from({ length: Number(of ?? 0) }, (_, index) =>
    index < Number(passed) ? record("passed", index, undefined) : record("failed", index, says),
  );
}

/** Whether the kubelet passes it: it is in a list of this machine's. */
export function isPassed({ list }: Entry): boolean {
  return list === "here" || list === "here-slow";
}
