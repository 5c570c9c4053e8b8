/** Kubernetes' two test suites: of a cluster, and of a node alone. */
export const suiteNames = ["e2e", "e2e_node"] as const;
export type SuiteName = (typeof suiteNames)[number];

/** A test that is to pass: its full name, in one of the suites. */
export interface ListedTest {
  readonly suite: SuiteName;
  readonly name: string;
}

/** Reads a list of tests: a line each, the suite, a tab, the name; `#` begins a comment.
 *  @param source the file, for errors. @throws a sentence that names the line. */
export function parseList(text: string, source: string): readonly ListedTest[] {
  const tests: ListedTest[] = [];
  const seen = new Set<string>();
  for (const [index, line] of text.split("\n").entries()) {
    if (line.trim() === "" || line.startsWith("#")) continue;
    const fault = (why: string): Error => new Error(`line ${index + 1} of ${source} ${why}: ${JSON.stringify(line)}`);
    const [given, name, ...rest] = line.split("\t");
    const suite = suiteNames.find((each) => each === given);
    if (suite === undefined || !name?.trim() || rest.length > 0)
      throw fault(`is not one of ${suiteNames.join(", ")}, a tab and a test's name`);
    if (seen.has(line)) throw fault("stands there twice");
    seen.add(line);
    tests.push({ suite, name });
  }
  return tests;
}

/** Those that match `SUITE NAME`, all where nothing is asked for. @throws when none does. */
export function matching(tests: readonly ListedTest[], focus: RegExp | undefined): readonly ListedTest[] {
  if (!focus) return tests;
  const found = tests.filter(({ suite, name }) => focus.test(`${suite} ${name}`));
  if (found.length === 0)
    throw new Error(`FOCUS is ${focus.source}: no listed test matches; the list is test/conformance/tests.txt`);
  return found;
}

/** The special interest group that a test is of, as its name begins: `sig-node`. */
export function areaOf({ name }: ListedTest): string {
  return /^\[(sig-[a-z-]+)\]/.exec(name)?.[1] ?? "others";
}
