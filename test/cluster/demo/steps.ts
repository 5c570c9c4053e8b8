/** Says which step of how many a long command is at, and how long each took. */
export interface Steps {
  /** Ends the step before, if any. */
  begin(title: string): void;
  /** A line about the step. */
  note(this: void, line: string): void;
  /** Ends the last step. */
  end(): void;
}

/** @param now milliseconds that only grow. */
export function createSteps(
  total: number,
  print: (line: string) => void = console.log,
  now = (): number => performance.now(),
): Steps {
  let step = 0;
  let began: number | undefined;
  const end = (): void => {
    if (began !== undefined) print(`    done in ${Math.round((now() - began) / 1000)} s`);
    began = undefined;
  };
  return {
    begin(title) {
      end();
      step += 1;
      began = now();
      print(`==> ${title} (${step} of ${total}) …`);
    },
    note: (line) => print(`    ${line}`),
    end,
  };
}
