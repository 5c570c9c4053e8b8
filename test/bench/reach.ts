import { shortNumber } from "./statistics.ts";

/** The middle of a figure by who was measured; undefined where nothing was. */
export type Measured = (who: string) => number | undefined;

/** What a figure should reach. */
export interface Reach {
  /** As the table has it: `≤ 0.50 × kubelet`. */
  readonly text: string;
  /** What is held against the limit; undefined where it was not measured. */
  readonly of: (measured: Measured) => number | undefined;
  readonly isReached: (value: number) => boolean;
  readonly unit: string;
}

/** A part of somebody else's figure, at most. */
export function atMostTimes(limit: number, who: string, other: string): Reach {
  return ofOther(who, other, `≤ ${shortNumber(limit)}`, (value) => value <= limit);
}

/** A part of somebody else's figure, at least. */
export function atLeastTimes(limit: number, who: string, other: string): Reach {
  return ofOther(who, other, `≥ ${shortNumber(limit)}`, (value) => value >= limit);
}

function ofOther(who: string, other: string, limit: string, isReached: Reach["isReached"]): Reach {
  return {
    text: `${limit} × ${other}`,
    unit: "×",
    of(measured) {
      const [value, base] = [measured(who), measured(other)];
      return value === undefined || base === undefined ? undefined : value / base;
    },
    isReached,
  };
}

/** So much, at most. */
export function atMost(limit: number, who: string, unit: string): Reach {
  const text = `≤ ${shortNumber(limit)} ${unit}`.trimEnd();
  return { text, unit, of: (measured) => measured(who), isReached: (value) => value <= limit };
}

/** What somebody's figure is measured from. */
export interface Base {
  /** As the table has it. */
  readonly text: string;
  readonly of: (measured: Measured) => number | undefined;
}

/** So much beyond something, at most. */
export function atMostBeyond(base: Base, limit: number, who: string, unit: string): Reach {
  return {
    text: `≤ ${shortNumber(limit)} ${unit} beyond ${base.text}`,
    unit,
    of(measured) {
      const [value, start] = [measured(who), base.of(measured)];
      return value === undefined || start === undefined ? undefined : value - start;
    },
    isReached: (value) => value <= limit,
  };
}
