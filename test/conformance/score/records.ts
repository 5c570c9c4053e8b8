import { appendFileSync, existsSync, readFileSync } from "node:fs";
import { type ListedTest, whole } from "../list.ts";
import type { Outcome } from "../outcomes.ts";

/** One test's end in one run, a line of the file that is appended to as tests end. */
export interface RunRecord extends ListedTest, Outcome {
  /** Tells runs apart, and sorts by time. A test that is noted twice in a run has ended as the later line says. */
  readonly run: string;
}

/** What is known of a test: how its runs ended, the first one first. */
export type Attempts = ReadonlyMap<string, readonly Outcome[]>;

/** Reads the file of records; none where there is no file. A last line that was cut short by a kill is left out. */
export function readRecords(file: string): readonly RunRecord[] {
  if (!existsSync(file)) return [];
  return readFileSync(file, "utf8")
    .split("\n")
    .flatMap((line) => (line.endsWith("}") ? [JSON.parse(line) as RunRecord] : []));
}

/** Appends records, a line each. */
export function addRecords(file: string, records: readonly RunRecord[]): void {
  appendFileSync(file, records.map((record) => `${JSON.stringify(record)}\n`).join(""));
}

/** The attempts at each test, by `SUITE NAME`. */
export function attemptsOf(records: readonly RunRecord[]): Attempts {
  const byTest = new Map<string, Map<string, Outcome>>();
  for (const { suite, name, run, state, seconds, says } of records) {
    const key = whole({ suite, name });
    const runs = byTest.get(key) ?? new Map<string, Outcome>();
    byTest.set(key, runs.set(run, { state, seconds, ...(says !== undefined && { says }) }));
  }
  return new Map([...byTest].map(([key, runs]) => [key, [...runs.values()]]));
}

/** Whether an outcome says something of the test: one that was interrupted because another one hung does not.
 *  @param quietMs the time in which a test that still runs hangs. */
export function counts({ state, seconds }: Outcome, quietMs: number): boolean {
  const cut = ["interrupted", "aborted", "timedout"].includes(state);
  return !cut || seconds * 1000 >= quietMs;
}

/** The name of a test that ginkgo's output is about: the output marks where a test failed, and adds labels.
 *  @param names those that run. */
export function nameOf(title: string, names: readonly string[]): string | undefined {
  const bare = title.replaceAll(
    /\[(?:It|(?:Just)?(?:Before|After)Each|(?:Before|After)All|DeferCleanup[^\]]*)\] /g,
    "",
  );
  const plain = bare.replaceAll(/ {2,}/g, " ");
  const fitting = names.filter((name) => plain === name || plain.startsWith(`${name} [`));
  return fitting.toSorted((a, b) => b.length - a.length)[0];
}
