/** Converts a CRI time in nanoseconds to whole milliseconds, rounded down. */
export function toMilliseconds(nanoseconds: bigint): number {
  return Number(nanoseconds / 1_000_000n);
}
