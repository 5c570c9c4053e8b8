import type { Measured } from "./reach.ts";
import { median } from "./statistics.ts";

/** What was measured: values by figure, by who was measured, and by round. */
export interface Ledger {
  note(figure: string, who: string, round: number, ...values: readonly number[]): void;
  /** All values, or those of one round; empty where nothing was measured. */
  values(figure: string, who: string, round?: number): readonly number[];
  /** The rounds in which a figure was measured of anybody, in order. */
  rounds(figure: string): readonly number[];
}

interface Entry {
  readonly figure: string;
  readonly who: string;
  readonly round: number;
  readonly values: readonly number[];
}

export function createLedger(): Ledger {
  const entries: Entry[] = [];
  return {
    note: (figure, who, round, ...values) => void entries.push({ figure, who, round, values }),
    values: (figure, who, round) =>
      entries
        .filter((each) => each.figure === figure && each.who === who && (round === undefined || each.round === round))
        .flatMap(({ values }) => values),
    rounds: (figure) =>
      [...new Set(entries.filter((each) => each.figure === figure).map(({ round }) => round))].sort((a, b) => a - b),
  };
}

/** The middle of a figure by who was measured, over all rounds or in one. */
export function medians(ledger: Ledger, figure: string, round?: number): Measured {
  return (who) => {
    const values = ledger.values(figure, who, round);
    return values.length > 0 ? median(values) : undefined;
  };
}
