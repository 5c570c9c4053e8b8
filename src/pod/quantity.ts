import { CodedError } from "../lib/errors.ts";

const factors: Readonly<Record<string, number>> = {
  n: 1e-9,
  u: 1e-6,
  m: 1e-3,
  "": 1,
  k: 1e3,
  M: 1e6,
  G: 1e9,
  T: 1e12,
  P: 1e15,
  E: 1e18,
  Ki: 2 ** 10,
  Mi: 2 ** 20,
  Gi: 2 ** 30,
  Ti: 2 ** 40,
  Pi: 2 ** 50,
  Ei: 2 ** 60,
};

/** A quantity in its own unit, not rounded. @throws CodedError invalid_argument.
 *  @see https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/ */
export function quantityNumber(quantity: string): number {
  const match = /^([+-]?[0-9]*\.?[0-9]+|[+-]?[0-9]+\.)(?:[eE]([+-]?[0-9]+)|([numkMGTPE]|[KMGTPE]i)?)$/.exec(quantity.trim());
  const [, digits, exponent, suffix] = match ?? [];
  if (digits === undefined) throw new CodedError("invalid_argument", `${JSON.stringify(quantity)} is not a quantity: write a number with a suffix such as m, k, Ki, Mi or Gi`);
  if (exponent !== undefined) return Number(`${digits}e${exponent}`);
  return Number(digits) * (factors[suffix ?? ""] ?? 1);
}

/** A quantity in whole units, rounded up. */
export function quantityValue(quantity: string): number {
  return ceil(quantityNumber(quantity));
}

/** A quantity in thousandths, rounded up. */
export function quantityMilli(quantity: string): number {
  return ceil(quantityNumber(quantity) * 1000);
}

/** Rounds up, except where binary fractions alone made the excess (0.1 × 3 is not 0.3). */
function ceil(value: number): number {
  const nearest = Math.round(value);
  return Math.abs(value - nearest) < 1e-6 ? nearest : Math.ceil(value);
}
