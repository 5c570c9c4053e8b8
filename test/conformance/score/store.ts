import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { withPart } from "../../bench/document.ts";
import { isGuest } from "../../matrix.ts";
import { type ListedTest, parseList, whole } from "../list.ts";
import type { AgentName, Provider } from "../options.ts";
import { type GuestEntry, guestEntries, guestText, parseGuestEntries, passesInGuest } from "./in-guest.ts";
import { type Entry, isPassed, lists, type ListName, listText, parseEntries, placeAll } from "./lists.ts";
import { attemptsOf, readRecords } from "./records.ts";
import { parseResults, type Result, resultsOf, resultsText } from "./results.ts";
import { scoreText } from "./table.ts";
import { parseWithheld, type Withheld } from "./withheld.ts";

const folder = join(import.meta.dirname, "..");
const page = join(folder, "..", "..", "docs", "conformance.md");
const listFile = (name: ListName): string => join(folder, "lists", `${name}.txt`);
const guestFile = join(folder, "lists", "in-guest.txt");
const resultsFile = (provider: Provider): string => join(folder, "results", `${provider}.txt`);
const read = (file: string): string => (existsSync(file) ? readFileSync(file, "utf8") : "");

/** All candidates. */
export function readCandidates(): readonly ListedTest[] {
  return parseList(read(join(folder, "candidates.txt")), "test/conformance/candidates.txt");
}

/** The tests that are not candidates, since they are to pass already. */
export function readListed(): readonly ListedTest[] {
  return parseList(read(join(folder, "tests.txt")), "test/conformance/tests.txt");
}

/** The tests that are not run beside other work. */
export function readWithheld(): readonly Withheld[] {
  return parseWithheld(read(join(folder, "score", "withheld.yaml")), "test/conformance/score/withheld.yaml");
}

/** The lists as they are committed. */
export function readEntries(): readonly Entry[] {
  return (Object.keys(lists) as ListName[]).flatMap((name) => parseEntries(name, read(listFile(name))));
}

/** The list of what was run in a guest, as it is committed. */
export function readGuestEntries(): readonly GuestEntry[] {
  return parseGuestEntries(read(guestFile));
}

/** Tests that graftlet is to pass with a provider: what the kubelet passes, and in a guest, where no run is of the whole list, the list as well. */
export function readToPass(provider: Provider): readonly ListedTest[] {
  const passed = readEntries().filter(isPassed);
  if (provider !== "guest" && !isGuest(provider)) return passed;
  const inGuest = readGuestEntries().filter(passesInGuest);
  if (provider === "guest") return inGuest.filter(({ suite }) => suite === "e2e_node");
  const all = [...passed, ...inGuest, ...readListed()].filter(({ suite }) => suite === "e2e");
  return [...new Map(all.map((test) => [whole(test), test])).values()];
}

/** The results as they are committed. */
export function readResults(provider: Provider): readonly Result[] {
  return parseResults(read(resultsFile(provider)), resultsFile(provider));
}

/** Writes what the records say into the committed lists or results, and the table into docs/conformance.md. */
export function writeScore(agent: AgentName, provider: Provider, records: string): void {
  const attempts = attemptsOf(readRecords(records));
  const candidates = readCandidates();
  if (agent === "kubelet" && provider === "guest")
    writeFileSync(guestFile, guestText(guestEntries([...candidates, ...readListed()], attempts, readGuestEntries())));
  else if (agent === "kubelet") {
    const placed = placeAll(candidates, { attempts, withheld: readWithheld(), committed: readEntries() });
    mkdirSync(join(folder, "lists"), { recursive: true });
    for (const name of Object.keys(lists) as ListName[]) writeFileSync(listFile(name), listText(name, placed));
  }
  if (agent === "graftlet") {
    const results = resultsOf(attempts, readResults(provider), readToPass(provider));
    mkdirSync(join(folder, "results"), { recursive: true });
    writeFileSync(resultsFile(provider), resultsText(provider, results));
  }
  const known = { candidates, listed: readListed(), entries: readEntries(), guestEntries: readGuestEntries() };
  const text = scoreText({ ...known, results: readResults });
  writeFileSync(page, withPart(readFileSync(page, "utf8"), "conformance score", text));
}
