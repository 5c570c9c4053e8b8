/** Kubernetes' two test suites: of a cluster, and of a node alone. */
export const suiteNames = ["e2e", "e2e_node"] as const;
export type SuiteName = (typeof suiteNames)[number];

/** A test that is to pass: its full name, in one of the suites. */
export interface ListedTest {
  readonly suite: SuiteName;
  readonly name: string;
}

/** Reads a list of tests: a line each, the suite, a tab, the name, and what else a list has after more tabs; `#` begins a comment.
 *  @param source the file, for errors. @throws a sentence that names the line. */
export function parseList(text: string, source: string): readonly ListedTest[] {
  const tests: ListedTest[] = [];
  const seen = new Set<string>();
  for (const [index, line] of text.split("\n").entries()) {
    if (line.trim() === "" || line.startsWith("#")) continue;
    const fault = (why: string): Error => new Error(`line ${index + 1} of ${source} ${why}: ${JSON.stringify(line)}`);
    const [given, name] = line.split("\t");
    const suite = suiteNames.find((each) => each === given);
    if (suite === undefined || !name?.trim())
      throw fault(`is not one of ${suiteNames.join(", ")}, a tab and a test's name`);
    const key = `${given}\t${name}`;
    if (seen.has(key)) throw fault("stands there twice");
    seen.add(key);
    // A container of tests without a text leaves two blanks in reports; ginkgo's focus is held against a name without it.
    tests.push({ suite, name: name.replaceAll(/ {2,}/g, " ") });
  }
  return tests;
}

/** Those that a focus is about, all where there is none. It is held against `SUITE NAME`: a piece of it as it stands, or else a regular
 *  expression. @throws a sentence when nothing fits. */
export function matching(tests: readonly ListedTest[], focus: string | undefined): readonly ListedTest[] {
  if (focus === undefined) return tests;
  const verbatim = tests.filter((test) => whole(test).includes(focus));
  if (verbatim.length > 0) return verbatim;
  const expression = expressionOf(focus);
  const found = tests.filter((test) => expression.test(whole(test)));
  if (found.length > 0) return found;
  throw new Error(
    `FOCUS is ${JSON.stringify(focus)}: no listed test has it in its name, nor matches it as a regular expression; the list is test/conformance/tests.txt`,
  );
}

/** A test as a focus and a limit name it. */
export function whole({ suite, name }: ListedTest): string {
  return `${suite} ${name}`;
}

function expressionOf(focus: string): RegExp {
  try {
    return new RegExp(focus);
  } catch {
    throw new Error(
      `FOCUS is ${JSON.stringify(focus)}: no listed test has it in its name, and it is no regular expression`,
    );
  }
}

/** The special interest group that a test is of, as its name begins: `sig-node`. */
export function areaOf({ name }: ListedTest): string {
  return /^\[(sig-[a-z-]+)\]/.exec(name)?.[1] ?? "others";
}
