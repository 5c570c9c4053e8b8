/** Milliseconds of a time as CRI has it, which counts nanoseconds; whole ones, rounded down. */
export function toMilliseconds(nanoseconds: bigint): number {
  return Number(nanoseconds / 1_000_000n);
}
