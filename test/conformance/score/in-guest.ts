import { type ListedTest, whole } from "../list.ts";
import { capabilityOf } from "./capabilities.ts";
import { judge } from "./judgement.ts";
import { attemptsIn, type Entry, entryText, noteOf, parseEntryText } from "./lists.ts";
import { attemptsOf, type Attempts } from "./records.ts";

const file = "test/conformance/lists/in-guest.txt";
const title =
  "Candidates that the real kubelet was run with in a guest, as a whole node: systemd, cgroup v2, swap. How its attempts ended.";

/** Needs that a guest meets and this machine does not, as the entries of the list `guest` name them. */
const has = /^(?:cgroup v2|swap|NUMA nodes|huge pages|CAP_SYS_RESOURCE|AppArmor|systemd-logind);/;

/** A candidate's attempts in a guest. */
export type GuestEntry = Omit<Entry, "list">;

/** Candidates to be tried with the kubelet in a guest: the node's own that need something that a guest has.
 *  @param entries where candidates belong by what was tried on this machine; one without an entry was not. */
export function fitGuest(candidates: readonly ListedTest[], entries: readonly Entry[]): readonly ListedTest[] {
  const known = new Map(entries.map((entry) => [whole(entry), entry]));
  return candidates.filter((test) => {
    const entry = known.get(whole(test));
    return test.suite === "e2e_node" && (entry === undefined || (entry.list === "guest" && has.test(entry.note)));
  });
}

/** Entries of what was tried, those of other machines first taken over. */
export function guestEntries(
  candidates: readonly ListedTest[],
  attempts: Attempts,
  committed: readonly GuestEntry[],
): readonly GuestEntry[] {
  const before = new Map(committed.map((entry) => [whole(entry), entry]));
  return candidates.flatMap((test) => {
    const made = attempts.get(whole(test)) ?? [];
    const note = noteOf(made);
    return made.length > 0 ? { ...test, capability: capabilityOf(test), note } : (before.get(whole(test)) ?? []);
  });
}

/** True where the kubelet passes it there. */
export function passesInGuest(entry: GuestEntry): boolean {
  const attempts = attemptsOf(attemptsIn({ ...entry, list: "guest" })).get(whole(entry)) ?? [];
  return ["passes", "passed once"].includes(judge(attempts));
}

/** The list's file. */
export function guestText(entries: readonly GuestEntry[]): string {
  return entryText(title, entries);
}

/** Reads it. @throws as `parseList`. */
export function parseGuestEntries(text: string): readonly GuestEntry[] {
  return parseEntryText(text, file);
}
