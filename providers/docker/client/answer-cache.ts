/** Cache of the daemon's responses: they are valid while its event stream runs and reports no change. */
export interface AnswerCache {
  /** The event stream has started: changes before it are unknown. */
  begin(): void;
  end(): void;
  /** The daemon or its images may have changed. */
  changed(): void;
  /** Token of the current state; undefined while no event stream runs. */
  mark(): number | undefined;
  /** Caches a response until the next change. */
  keep<T>(ask: (signal: AbortSignal) => Promise<T>): (signal: AbortSignal) => Promise<T>;
}

export function createAnswerCache(): AnswerCache {
  let changes = 0;
  let flows = false;
  const mark = () => (flows ? changes : undefined);
  return {
    begin() {
      flows = true;
      changes += 1;
    },
    end: () => void (flows = false),
    changed: () => void (changes += 1),
    mark,
    keep<T>(ask: (signal: AbortSignal) => Promise<T>) {
      let kept: { readonly at: number; readonly answer: T } | undefined;
      return async (signal: AbortSignal) => {
        const at = mark();
        if (kept && kept.at === at) return kept.answer;
        const answer = await ask(signal);
        kept = at === undefined ? undefined : { at, answer };
        return answer;
      };
    },
  };
}
