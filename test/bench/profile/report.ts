import { median, percentile, shortNumber } from "../statistics.ts";
import { markdownTable } from "../table.ts";
import type { CpuSlice } from "./cpu-timeline.ts";
import { type RuntimeCall, concurrency } from "./runtime-calls.ts";

/** A pod of the scenario: when its creation or deletion was requested, and when the API server showed the result. Milliseconds since the
 *  epoch. */
export interface PodTimes {
  readonly name: string;
  readonly asked: number;
  readonly shown: number;
}

/** CPU time by role, and its share of the cores within the time: in all, and in eight parts of the time. */
export function cpuTable(slices: readonly CpuSlice[], cores: number): string {
  const parts = 8;
  const end = slices.at(-1)?.at ?? 0;
  const partOf = (at: number) => Math.max(0, Math.ceil((at / end) * parts) - 1);
  const roles = new Map<string, number[]>();
  for (const { at, used } of slices)
    for (const [role, ms] of used) {
      const row = roles.get(role) ?? Array.from({ length: parts }, () => 0);
      row[partOf(at)] = (row[partOf(at)] ?? 0) + ms;
      roles.set(role, row);
    }
  const sum = (row: readonly number[]) => row.reduce((all, ms) => all + ms, 0);
  const percent = (ms: number, of: number) => `${Math.round((ms / (of * cores)) * 100)} %`;
  const cells = (row: readonly number[]) => [
    String(Math.round(sum(row))),
    percent(sum(row), end),
    ...row.map((ms) => percent(ms, end / parts)),
  ];
  const rows = [...roles].filter(([, row]) => sum(row) > 0).sort(([, a], [, b]) => sum(b) - sum(a));
  const all = Array.from({ length: parts }, (_, part) => rows.reduce((ms, [, row]) => ms + (row[part] ?? 0), 0));
  const to = Array.from({ length: parts }, (_, part) => `to ${shortNumber((end * (part + 1)) / parts / 1000)} s`);
  return markdownTable(
    ["CPU time", "ms", `of ${cores} cores`, ...to],
    [...rows.map(([role, row]) => [role, ...cells(row)]), ["all of them", ...cells(all)]],
  );
}

/** What the pods waited for: each call of the runtime, and the time before it. */
export function waitTable(pods: readonly PodTimes[], calls: readonly RuntimeCall[]): string {
  const waits = new Map<string, number[]>();
  const note = (what: string, ms: number) => waits.set(what, [...(waits.get(what) ?? []), ms]);
  for (const { name, asked, shown } of pods) {
    const own = calls.filter(({ pod, began }) => pod === name && began >= asked).sort((a, b) => a.began - b.began);
    let last = asked;
    for (const { verb, began, ended } of own) {
      note(`before ${verb}`, began - last);
      note(verb, ended - began);
      last = ended;
    }
    note("until the API server shows it", shown - last);
    note("in all", shown - asked);
  }
  const rows = [...waits].map(([what, values]) => [
    what,
    ...[median(values), percentile(values, 90), Math.max(...values)].map((ms) => String(Math.round(ms))),
  ]);
  return markdownTable(["a pod's time, ms", "median", "90 %", "longest"], rows);
}

/** How many calls of each kind the runtime had in progress. */
export function concurrencyTable(calls: readonly RuntimeCall[]): string {
  const rows = [...Map.groupBy(calls, ({ verb }) => verb)].map(([verb, own]) => {
    const { mean, most } = concurrency(own);
    return [verb, String(own.length), shortNumber(mean), String(most)];
  });
  return markdownTable(["call", "made", "in progress, mean", "most"], rows);
}

/** What grew most between two heap snapshots. */
export function heapTable(before: ReadonlyMap<string, number>, after: ReadonlyMap<string, number>): string {
  const mib = (bytes: number) => (bytes / 2 ** 20).toFixed(2);
  const total = (sizes: ReadonlyMap<string, number>) => [...sizes.values()].reduce((sum, bytes) => sum + bytes, 0);
  const grown = [...after].map(([what, bytes]) => [what, bytes, bytes - (before.get(what) ?? 0)] as const);
  const rows = grown.sort(([, , a], [, , b]) => b - a).slice(0, 15);
  return markdownTable(
    ["alive in the heap, MiB", "after", "more than before"],
    [["everything", total(after), total(after) - total(before)] as const, ...rows].map(([what, bytes, more]) => [
      what,
      mib(bytes),
      mib(more),
    ]),
  );
}
