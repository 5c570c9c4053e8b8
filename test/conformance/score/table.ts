import { markdownTable } from "../../bench/table.ts";
import { areaOf, type ListedTest, whole } from "../list.ts";
import type { Guest } from "../../matrix.ts";
import { guests, type Provider, wholes } from "../options.ts";
import { capabilityOf } from "./capabilities.ts";
import { type GuestEntry, passesInGuest } from "./in-guest.ts";
import { type Entry, isPassed } from "./lists.ts";
import type { Result } from "./results.ts";

/** All that is known of the candidates. */
export interface Standing {
  readonly candidates: readonly ListedTest[];
  /** The tests beside the candidates. */
  readonly listed: readonly ListedTest[];
  readonly entries: readonly Entry[];
  readonly guestEntries: readonly GuestEntry[];
  readonly results: (provider: Provider) => readonly Result[];
}

/** The score's part of docs/conformance.md, in Markdown. */
export function scoreText(standing: Standing): string {
  const parts = [sentence(standing), tableOf(standing), guestsOf(standing), inGuest(standing)];
  return parts.filter(Boolean).join("\n\n");
}

function sentence(standing: Standing): string {
  const { candidates, entries } = standing;
  const passed = entries.filter(isPassed);
  const once = passed.filter(({ note }) => note === "passed 1 of 1").length;
  const unknown = unknownOf(standing);
  const elsewhere = candidates.length - entries.length - unknown.length;
  const of = (list: Entry["list"]) => entries.filter((entry) => entry.list === list).length;
  const rest = [
    `${of("guest") + elsewhere} need another machine, ${of("others")} it skips or fails for another reason`,
    ...(unknown.length > 0 ? [`and ${unknown.length} ${unknown.length === 1 ? "has" : "have"} not been run yet`] : []),
  ];
  return [
    `Of ${candidates.length} candidates the kubelet passes ${passed.length} on this machine${once > 0 ? `, ${once} of them with one attempt so far` : ""}.`,
    `${rest.join(",\n")}.`,
  ].join("\n");
}

/** Candidates that the kubelet was run with on no machine. */
function unknownOf({ candidates, entries, guestEntries }: Standing): readonly ListedTest[] {
  const known = new Set([...entries, ...guestEntries].map(whole));
  return candidates.filter((test) => !known.has(whole(test)));
}

/** A row a capability: how many candidates, how many of them the kubelet passes, and of those graftlet on each provider. */
function tableOf(standing: Standing): string {
  const { candidates, entries, results } = standing;
  const passed = entries.filter(isPassed);
  const unknownAnywhere = unknownOf(standing);
  const row = (name: string, belongs: (capability: string) => boolean): readonly string[] => {
    const all = candidates.filter((test) => belongs(capabilityOf(test)));
    const listed = passed.filter(({ capability }) => belongs(capability));
    const unknown = unknownAnywhere.filter((test) => belongs(capabilityOf(test))).length;
    const kubelet = notRun(`${listed.length}`, unknown, all.length);
    return [name, `${all.length}`, kubelet, ...wholes.map((provider) => cell(listed, results(provider)))];
  };
  const capabilities = [...new Set(candidates.map(capabilityOf))].toSorted();
  return markdownTable(
    ["capability", "candidates", "kubelet passes", ...wholes.map((provider) => `graftlet, ${provider}`)],
    [...capabilities.map((name) => row(name, (capability) => capability === name)), row("all", () => true)],
  );
}

const runtimes: Readonly<Record<Guest, string>> = {
  "ssh-guest": "containerd",
  "ssh-docker-guest": "a Docker Engine",
};

/** A line for each guest: how many of the tests that were run there graftlet passes, by area; empty where none was. */
function guestsOf({ entries, listed, results }: Standing): string {
  const known = new Set([...entries.filter(isPassed), ...listed].map(whole));
  const lines = guests.flatMap((guest) => {
    const run = results(guest).filter((test) => known.has(whole(test)));
    const count = (tests: readonly Result[]): string =>
      `${tests.filter(({ state }) => state === "passed").length} of ${tests.length}`;
    const areas = Object.entries(Object.groupBy(run, areaOf)).map(([area, tests = []]) => `${area} ${count(tests)}`);
    return run.length > 0
      ? `- \`${guest}\`, ${runtimes[guest]}: ${count(run)} that were run (${areas.join(", ")}).`
      : [];
  });
  const intro =
    "In a guest, a machine with a kernel of its own that is reached over SSH, graftlet passes of these and of the list:";
  return lines.length > 0 ? [intro, "", ...lines].join("\n") : "";
}

/** A row a capability of what the kubelet was run with as a node in a guest; empty where nothing was. */
function inGuest({ guestEntries, results }: Standing): string {
  const capabilities = [...new Set(guestEntries.map(({ capability }) => capability))].toSorted();
  if (capabilities.length === 0) return "";
  const row = (name: string, belongs: (capability: string) => boolean): readonly string[] => {
    const run = guestEntries.filter(({ capability }) => belongs(capability));
    const passed = run.filter(passesInGuest);
    return [name, `${run.length}`, `${passed.length}`, cell(passed, [...results("guest"), ...results("ssh-guest")])];
  };
  const table = markdownTable(
    ["capability", "run in a guest", "kubelet passes", "graftlet"],
    [...capabilities.map((name) => row(name, (capability) => capability === name)), row("all", () => true)],
  );
  const intro = [
    "With `PROVIDER=guest`, the tests that need a separate machine, and those whose result depends on the machine, were run in a VM guest.",
    "The kubelet ran inside the guest. Graftlet ran inside it for `e2e_node`, and outside it, over SSH, for `e2e`:",
  ];
  return `${intro.join("\n")}\n\n${table}`;
}

/** What graftlet passes of what the kubelet passes. */
function cell(listed: readonly ListedTest[], results: readonly Result[]): string {
  if (listed.length === 0) return "";
  const states = new Map(results.map((result) => [whole(result), result.state]));
  const run = listed.filter((test) => states.has(whole(test)));
  const passed = run.filter((test) => states.get(whole(test)) === "passed");
  return notRun(`${passed.length} of ${listed.length}`, listed.length - run.length, listed.length);
}

/** A count, and how many were not run. */
function notRun(count: string, missing: number, all: number): string {
  if (missing === 0) return count;
  return missing === all ? "not run" : `${count}, ${missing} not run`;
}
