/** The value below which `percent` of a hundred of all lie, drawn out between the two nearest. @throws when there are none. */
export function percentile(values: readonly number[], percent: number): number {
  const sorted = values.toSorted((a, b) => a - b);
  const place = ((sorted.length - 1) * percent) / 100;
  const below = sorted[Math.floor(place)];
  const above = sorted[Math.ceil(place)];
  if (below === undefined || above === undefined) throw new Error("nothing was measured: there is no percentile of it");
  return below + (above - below) * (place - Math.floor(place));
}

/** The middle of all. @throws when there are none. */
export function median(values: readonly number[]): number {
  return percentile(values, 50);
}

/** Three digits that count, and no more: 1234, 123, 12.3, 1.23, 0.12. */
export function shortNumber(value: number): string {
  const size = Math.abs(value);
  return value.toFixed(size >= 100 ? 0 : size >= 10 ? 1 : 2);
}
