import { type ListedTest, parseList, whole } from "../list.ts";
import type { Outcome } from "../outcomes.ts";
import { firstLine } from "../verdicts.ts";
import { capabilityOf } from "./capabilities.ts";
import { judge } from "./judgement.ts";
import { needOf } from "./needs.ts";
import type { Attempts } from "./records.ts";
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
    const entry = placeOf(test, known.attempts.get(whole(test)) ?? [], reasonAgainst(known.withheld, test));
    return entry ?? committed.get(whole(test)) ?? [];
  });
}

function placeOf(test: ListedTest, attempts: readonly Outcome[], reason: string | undefined): Entry | undefined {
  const capability = capabilityOf(test);
  const at = (list: ListName, note: string): Entry => ({ ...test, list, capability, note });
  if (reason !== undefined) return at("guest", `not run: ${reason}`);
  const judgement = judge(attempts);
  if (judgement === "not run") return undefined;
  const passed = attempts.filter(({ state }) => state === "passed");
  if (judgement === "passes" || judgement === "passed once") {
    const seconds = Math.max(...passed.map((outcome) => outcome.seconds));
    return at(seconds > slowSeconds ? "here-slow" : "here", `passed ${passed.length} of ${attempts.length}`);
  }
  const last = attempts.findLast(({ state }) => state !== "passed");
  const says = last?.says ?? "";
  const need = needOf(test, says);
  const count = judgement === "skipped" ? "skipped" : `passed ${passed.length} of ${attempts.length}`;
  const note = [count, firstLine(says)].filter(Boolean).join(": ");
  return need === undefined ? at("others", note) : at("guest", `${need}; ${note}`);
}

/** A list as its file has it: suite, name, capability and note of each test, sorted. */
export function listText(name: ListName, entries: readonly Entry[]): string {
  const lines = entries
    .filter(({ list }) => list === name)
    .map(({ suite, name: test, capability, note }) => [suite, test, capability, note].join("\t"));
  return [`# ${lists[name]}`, ...lines.toSorted(), ""].join("\n");
}

/** Reads a list's file. @throws as `parseList`. */
export function parseEntries(name: ListName, text: string): readonly Entry[] {
  const tests = parseList(text, `test/conformance/lists/${name}.txt`);
  const rest = text.split("\n").filter((line) => line.trim() !== "" && !line.startsWith("#"));
  return tests.map((test, index) => {
    const [, , capability = capabilityOf(test), note = ""] = rest[index]?.split("\t") ?? [];
    return { ...test, list: name, capability, note };
  });
}

/** Whether the kubelet passes it: it is in a list of this machine's. */
export function isPassed({ list }: Entry): boolean {
  return list === "here" || list === "here-slow";
}
