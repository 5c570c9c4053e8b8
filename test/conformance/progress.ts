/** A test that has ended, as ginkgo's output tells. */
export interface TestEnd {
  /** Ginkgo's word for how it ended, in small letters; `passed` is the only good one. */
  readonly state: string;
  readonly seconds: number;
  /** Its name with what ginkgo adds: where it failed, and its labels. */
  readonly title: string;
}

/** What separates tests in ginkgo's output. */
const separator = "------------------------------";

/** Follows ginkgo's output, a line at a time, and gives each test that has ended. Its name is in the line after that on its end; of one
 *  that passed while no other ran, in the line after the last separator.
 *  @see https://onsi.github.io/ginkgo/#controlling-the-output-of-ginkgo */
export function createEnds(ended: (end: TestEnd) => void): (line: string) => void {
  let ending: Omit<TestEnd, "title"> | undefined;
  let before = "";
  let begun = "";
  return (line) => {
    if (ending !== undefined) {
      ended({ ...ending, title: (line === separator ? begun : line).trim() });
      ending = undefined;
    }
    const end = /^[•S]!?(?: \[([A-Z! ]+)\])? \[([\d.]+) seconds\]$/.exec(line);
    if (end) ending = { state: end[1]?.toLowerCase() ?? "passed", seconds: Number(end[2]) };
    else if (before === separator) begun = line;
    before = line;
  };
}

/** Says of each test that has ended how it did and how many are left. @param total tests to run. */
export function createProgress(total: number, say: (line: string) => void): (end: TestEnd) => void {
  let done = 0;
  let failed = 0;
  return ({ state, seconds, title }) => {
    done += 1;
    if (state !== "passed") failed += 1;
    const count = `${done} of ${total}${failed > 0 ? `, ${failed} not passed` : ""}`;
    say(`${count}: ${state === "passed" ? state : state.toUpperCase()} after ${Math.round(seconds)} s: ${title}`);
  };
}
