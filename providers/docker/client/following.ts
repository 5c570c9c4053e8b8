/** What the daemon has told holds for as long as its events flow and tell of no change: then it is not asked again. */
export interface Following {
  /** Its events flow from now on: what happened before is not known. */
  begin(): void;
  end(): void;
  /** Something of the daemon or of its images may have changed. */
  changed(): void;
  /** A mark of what holds now; undefined while nothing can be held to. */
  mark(): number | undefined;
  /** Asks once, and again after a change. */
  keep<T>(ask: (signal: AbortSignal) => Promise<T>): (signal: AbortSignal) => Promise<T>;
}

export function createFollowing(): Following {
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
