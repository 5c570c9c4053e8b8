import { type ListedTest, whole } from "../list.ts";
import { capabilityOf } from "./capabilities.ts";
import { judge } from "./judgement.ts";
import { attemptsIn, type Entry, entryText, noteOf, parseEntryText } from "./lists.ts";
import { attemptsOf, type Attempts } from "./records.ts";
import type { Result } from "./results.ts";

const file = "test/conformance/lists/in-guest.txt";
const title =
  "Tests that the real kubelet was run with in a guest, as a whole node: systemd, cgroup v2, swap. How its attempts ended.";

/** Needs that a guest meets and this machine does not, as the entries of the list `guest` name them. */
const has = /^(?:cgroup v2|swap|NUMA nodes|more processors|huge pages|CAP_SYS_RESOURCE|AppArmor|systemd-logind);/;

/** A candidate's attempts in a guest. */
export type GuestEntry = Omit<Entry, "list">;

/** Tests of what the container manager, restarts and statistics make of a machine: an answer is one of cgroup v2 only where it was given
 *  there. Those that fill a disk are left out: the suite's API server is on it. */
const ofMachine =
  /Container Manager|Cgroup Manager|PodPidsLimit|Pod Level Resources|PodOverhead|\] CriticalPod|Summary API|ResourceMetricsAPI|\] Restart \[/;

/** Tests to be tried with the kubelet in a guest: those that need something that a guest has, of a node alone also those of what a
 *  machine is, and what graftlet does not pass there.
 *  @param candidates all but those that a guest does not run, either.
 *  @param entries where candidates belong by what was tried on this machine; one without an entry was not.
 *  @param listed the tests beside the candidates.
 *  @param results graftlet's, on a guest that it reaches over SSH. */
export function fitGuest(
  candidates: readonly ListedTest[],
  entries: readonly Entry[],
  listed: readonly ListedTest[],
  results: readonly Result[],
): readonly ListedTest[] {
  const known = new Map(entries.map((entry) => [whole(entry), entry]));
  const lost = new Set(results.filter(({ state }) => state !== "passed").map(whole));
  const needsIt = (test: ListedTest): boolean => {
    const entry = known.get(whole(test));
    if (entry === undefined) return test.suite === "e2e_node";
    return entry.list === "guest" && (has.test(entry.note) || entry.note.startsWith("not run: "));
  };
  const isOfMachine = ({ suite, name }: ListedTest): boolean => suite === "e2e_node" && ofMachine.test(name);
  return [
    ...candidates.filter((test) => needsIt(test) || isOfMachine(test) || lost.has(whole(test))),
    ...listed.filter((test) => isOfMachine(test) || lost.has(whole(test))),
  ];
}

/** Entries of what was tried, those of other machines first taken over.
 *  @param tests the candidates and the list, in the order of the entries. */
export function guestEntries(
  tests: readonly ListedTest[],
  attempts: Attempts,
  committed: readonly GuestEntry[],
): readonly GuestEntry[] {
  const before = new Map(committed.map((entry) => [whole(entry), entry]));
  return tests.flatMap((test) => {
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
