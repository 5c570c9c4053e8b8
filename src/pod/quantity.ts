import { CodedError } from "../lib/errors.ts";

/** Suffixes as powers of ten, and of two. */
const decimal: Readonly<Record<string, number>> = { n: -9, u: -6, m: -3, "": 0, k: 3, M: 6, G: 9, T: 12, P: 15, E: 18 };
const binary: Readonly<Record<string, number>> = { Ki: 10, Mi: 20, Gi: 30, Ti: 40, Pi: 50, Ei: 60 };

/** Parses a quantity, without rounding. @throws CodedError invalid_argument.
 *  @see https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/ */
export function quantityNumber(quantity: string): number {
  const match = /^([+-]?[0-9]*\.?[0-9]+|[+-]?[0-9]+\.)(?:[eE]([+-]?[0-9]+)|([numkMGTPE]|[KMGTPE]i)?)$/.exec(
    quantity.trim(),
  );
  const [, digits, exponent, suffix = ""] = match ?? [];
  if (digits === undefined)
    throw new CodedError(
      "invalid_argument",
      `${JSON.stringify(quantity)} is not a quantity: write a number with a suffix such as m, k, Ki, Mi or Gi`,
    );
  if (exponent !== undefined) return Number(`${digits}e${exponent}`);
  const power = binary[suffix];
  return power === undefined ? Number(`${digits}e${decimal[suffix] ?? 0}`) : Number(digits) * 2 ** power;
}

/** A quantity in whole units, rounded up. */
export function quantityValue(quantity: string): number {
  return ceil(quantityNumber(quantity));
}

/** A quantity in thousandths, rounded up. */
export function quantityMilli(quantity: string): number {
  return ceil(quantityNumber(quantity) * 1000);
}

/** A quantity, or a percentage such as `10%` of a total, in whole units.
 *  @param share percentages have single precision, as in the kubelet. @throws CodedError invalid_argument. */
export function quantityOrPercentage(share: string, total: number): number {
  if (!share.endsWith("%")) return quantityValue(share);
  return Math.trunc(total * Math.fround(Math.fround(Number(share.slice(0, -1))) / 100));
}

/** Formats whole bytes in the largest unit without remainder, as the API server does.
 *  @param step between units: 1024 for Ki, Mi and so on, 1000 for k, M and so on. */
export function canonicalBytes(bytes: number, step: 1024 | 1000): string {
  const units = step === 1024 ? ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"] : ["", "k", "M", "G", "T", "P", "E"];
  let unit = 0;
  let left = bytes;
  while (left > 0 && left % step === 0 && unit < units.length - 1) {
    left /= step;
    unit += 1;
  }
  return `${left}${units[unit]}`;
}

/** Formats an amount as the API does, to the thousandth, with binary units if `like` has them. */
export function canonicalAmount(amount: number, like: string): string {
  const milli = Math.round(amount * 1000);
  if (milli % 1000 !== 0) return `${milli}m`;
  return canonicalBytes(milli / 1000, like.endsWith("i") ? 1024 : 1000);
}

/** Rounds up, ignoring floating-point errors (0.1 × 3 is not 0.3). */
function ceil(value: number): number {
  const nearest = Math.round(value);
  return Math.abs(value - nearest) < 1e-6 ? nearest : Math.ceil(value);
}
