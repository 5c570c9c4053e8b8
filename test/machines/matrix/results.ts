import { appendFileSync, existsSync, mkdirSync, readFileSync } from "node:fs";
import { dirname } from "node:path";

/** A test that failed, and why. */
export interface Failure {
  readonly name: string;
  readonly says: string;
}

/** How a suite ended on one machine. */
export interface SuiteResult {
  /** As `nameOf` has it. */
  readonly cell: string;
  /** `tour`, or the name of a file of test/integration. */
  readonly suite: string;
  /** Names the source that ran. */
  readonly source: string;
  /** Day on which it ran: `2026-11-29`. */
  readonly date: string;
  /** `containerd 1.7.24, runc 1.1.15, …` */
  readonly versions: string;
  readonly passed: number;
  readonly failures: readonly Failure[];
  readonly seconds: number;
}

/** A line of the reporter: how a test ended. */
export type Ended = { readonly name: string; readonly passed: true } | ({ readonly passed: false } & Failure);

/** The results in a file with a line for each; none where there is no file. A last line that was cut short is left out. */
export function readResults(file: string): readonly SuiteResult[] {
  if (!existsSync(file)) return [];
  return readFileSync(file, "utf8")
    .split("\n")
    .flatMap((line) => (line.endsWith("}") ? [JSON.parse(line) as SuiteResult] : []));
}

/** Appends a result, in a line. */
export function addResult(file: string, result: SuiteResult): void {
  mkdirSync(dirname(file), { recursive: true });
  appendFileSync(file, `${JSON.stringify(result)}\n`);
}

/** The results with this one in place of the one before of the same cell and suite. */
export function withResult(results: readonly SuiteResult[], result: SuiteResult): readonly SuiteResult[] {
  const { cell, suite } = result;
  return [...results.filter((each) => each.cell !== cell || each.suite !== suite), result].toSorted((a, b) =>
    `${a.cell} ${a.suite}`.localeCompare(`${b.cell} ${b.suite}`),
  );
}

/** A Debian version as upstream numbers it: `1:9.2p1-2+deb12u7` is 9.2. */
export function upstreamVersion(version: string): string {
  return /^(?:\d+:)?(\d+(?:\.\d+)*)/.exec(version)?.[1] ?? version;
}
