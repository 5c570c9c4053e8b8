const form = /^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9})\d*)?(Z|[+-]\d\d:\d\d)$/;
const zeroTime = "0001-01-01T00:00:00Z";

/** Converts an Engine API time (RFC 3339, up to nine decimals) to nanoseconds since the epoch, exactly. 0 for Go's zero
 *  time ("not yet") and for invalid text. */
export function nanoseconds(time: string | undefined): bigint {
  const [, seconds, fraction = "", zone] = form.exec(time ?? "") ?? [];
  if (!seconds || time === zeroTime) return 0n;
  const milliseconds = Date.parse(seconds + zone);
  if (Number.isNaN(milliseconds)) return 0n;
  return BigInt(milliseconds) * 1_000_000n + BigInt(fraction.padEnd(9, "0"));
}

/** Converts a time of the Engine API's lists to nanoseconds since the epoch. @param seconds since the epoch. */
export function secondsToNanoseconds(seconds: number): bigint {
  return BigInt(Math.trunc(seconds)) * 1_000_000_000n;
}
