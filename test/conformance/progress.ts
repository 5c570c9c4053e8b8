/** Follows ginkgo's output, a line at a time, and says of each test that has ended how it did and how many are left.
 *  @param total tests to run. @see https://onsi.github.io/ginkgo/#controlling-the-output-of-ginkgo */
export function createProgress(total: number, say: (line: string) => void): (line: string) => void {
  let done = 0;
  let failed = 0;
  let ending: string | undefined;
  return (line) => {
    if (ending !== undefined) {
      const count = `${done} of ${total}${failed > 0 ? `, ${failed} not passed` : ""}`;
      say(`${count}: ${ending} ${line.trim()}`);
      ending = undefined;
      return;
    }
    const end = /^•(?: \[([A-Z! ]+)\])? \[([\d.]+) seconds\]$/.exec(line);
    if (!end) return;
    const [, state, seconds] = end;
    done += 1;
    if (state !== undefined) failed += 1;
    // Its name is in the next line.
    ending = `${state ?? "passed"} after ${Math.round(Number(seconds))} s:`;
  };
}
