/** How a test ended, by ginkgo's word for it, of which `passed` is the only good one. */
export interface Outcome {
  readonly state: string;
  readonly seconds: number;
  /** Why it did not pass, in the test's words. */
  readonly says?: string;
}

/** What a suite's run came to. */
export interface SuiteOutcome {
  /** By the test's full name. */
  readonly tests: ReadonlyMap<string, Outcome>;
  /** What kept the suite itself from running, such as a node that never was Ready. */
  readonly trouble: readonly string[];
}

/** As ginkgo writes it with --json-report. @see https://pkg.go.dev/github.com/onsi/ginkgo/v2@v2.28.1/types#SpecReport */
interface SpecReport {
  readonly ContainerHierarchyTexts: readonly string[] | null;
  readonly LeafNodeType: string;
  readonly LeafNodeText: string;
  readonly State: string;
  /** Nanoseconds. */
  readonly RunTime: number;
  readonly Failure?: { readonly Message: string };
}

interface SuiteReport {
  readonly SpecReports: readonly SpecReport[] | null;
  /** Why a suite ended early; that tests have failed is no such reason. */
  readonly SpecialSuiteFailureReasons?: readonly string[] | null;
}

/** Reads a report of ginkgo's. A test that was not asked for is not in it; one of several with a name counts as the worst of them.
 *  @param text an array of suites' reports, in JSON. */
export function outcomesOf(text: string): SuiteOutcome {
  const suites = JSON.parse(text) as readonly SuiteReport[];
  const tests = new Map<string, Outcome>();
  const trouble: string[] = [];
  for (const suite of suites) {
    trouble.push(...(suite.SpecialSuiteFailureReasons ?? []));
    for (const spec of suite.SpecReports ?? []) {
      const says = spec.Failure?.Message;
      if (spec.LeafNodeType !== "It") {
        if (spec.State !== "passed" && says) trouble.push(`${spec.LeafNodeType}: ${says}`);
        continue;
      }
      // Those beside the focus are skipped without a word.
      if (spec.State === "skipped" && !says) continue;
      const outcome = { state: spec.State, seconds: spec.RunTime / 1e9, ...(says && { says }) };
      const name = fullName(spec);
      const earlier = tests.get(name);
      if (!earlier || earlier.state === "passed") tests.set(name, outcome);
    }
  }
  return { tests, trouble };
}

function fullName({ ContainerHierarchyTexts: above, LeafNodeText: leaf }: SpecReport): string {
  return [...(above ?? []), leaf].filter((text) => text !== "").join(" ");
}
