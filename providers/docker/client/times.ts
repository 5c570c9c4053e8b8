const form = /^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9})\d*)?(Z|[+-]\d\d:\d\d)$/;
const zeroTime = "0001-01-01T00:00:00Z";

/** A time of the Engine API (RFC 3339, up to nine decimals) as CRI has it: nanoseconds since the epoch, to the last digit.
 *  0 for Go's zero time, which stands for "not yet", and for what is no time. */
export function nanoseconds(time: string | undefined): bigint {
  const [, seconds, fraction = "", zone] = form.exec(time ?? "") ?? [];
  if (!seconds || time === zeroTime) return 0n;
  const milliseconds = Date.parse(seconds + zone);
  if (Number.isNaN(milliseconds)) return 0n;
  return BigInt(milliseconds) * 1_000_000n + BigInt(fraction.padEnd(9, "0"));
}

/** @param seconds since the epoch, as lists of the Engine API have times. */
export function secondsToNanoseconds(seconds: number): bigint {
  return BigInt(Math.trunc(seconds)) * 1_000_000_000n;
}
