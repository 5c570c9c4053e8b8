import { join } from "node:path";
import type { FaultTest } from "./fault.ts";
import type { Outcome } from "./reporter.ts";

/** How a test is run in a checkout. */
export interface Run {
  readonly args: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  readonly minutes: number;
}

/** @param report the file that the outcomes are written to. */
export function runOf({ part, file, title, provider }: FaultTest, report: string): Run {
  const minutes = part === "unit" ? 5 : 20;
  const seconds = part === "unit" ? 60 : 900;
  return {
    args: [
      "--test",
      `--test-timeout=${seconds * 1000}`,
      `--test-reporter=${join(import.meta.dirname, "reporter.ts")}`,
      `--test-reporter-destination=${report}`,
      ...(title === undefined ? [] : [`--test-name-pattern=${RegExp.escape(title)}`]),
      file,
    ],
    env: part === "integration" ? { GRAFTLET_TEST_PROVIDER: provider ?? "cri", GRAFTLET_TEST_CONTAINERD: "1.6" } : {},
    minutes,
  };
}

/** Verdict of a test's outcomes on the fault. */
export interface Verdict {
  readonly found: boolean;
  /** The test that failed and why, or what happened in its place. */
  readonly because: string;
}

/** A fault is found by a test that fails. Where none ran nothing is known. */
export function verdictOf(outcomes: readonly Outcome[]): Verdict {
  const failed = outcomes.find(({ passed }) => !passed);
  if (failed) {
    const where = failed.inSetUp ? "set-up of " : "";
    return { found: true, because: `${where}"${failed.title}": ${failed.message}` };
  }
  const ran = outcomes.length;
  return { found: false, because: ran === 0 ? "no test ran to its end" : `${ran} test${ran > 1 ? "s" : ""} passed` };
}

/** How the test is called on the command line and in reports. */
export function nameOf({ part, provider, file, title }: FaultTest): string {
  return `${part}${part === "integration" ? ` ${provider ?? "cri"}` : ""} ${file}${title === undefined ? "" : ` "${title}"`}`;
}
