/** Parses a CPU list in the kernel's format: `0-3,8`. @param list already validated. */
export function cpusOf(list: string): ReadonlySet<number> {
  const ranges = list.split(",").filter((part) => part !== "");
  return new Set(
    ranges.flatMap((range) => {
      const [low = 0, high = low] = range.split("-").map(Number);
      return Array.from({ length: high - low + 1 }, (_, offset) => low + offset);
    }),
  );
}
