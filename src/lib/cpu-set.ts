/** Numbers of CPUs. */
export type CpuSet = ReadonlySet<number>;

/** The highest CPU number that a list may contain; kernels have at most 8,192 CPUs. */
const maxCpu = 65_535;

/** Parses a CPU list in the kernel's format: `0-3,8`. @param list already validated. */
export function cpusOf(list: string): CpuSet {
  const ranges = list.split(",").filter((part) => part !== "");
  return new Set(
    ranges.flatMap((range) => {
      const [low = 0, high = low] = range.split("-").map(Number);
      return Array.from({ length: high - low + 1 }, (_, offset) => low + offset);
    }),
  );
}

/** Parses a CPU list from a file of the target. @returns undefined for text that is not such a list. */
export function parseCpuList(text: string): CpuSet | undefined {
  const list = text.trim();
  const cpus = new Set<number>();
  for (const range of list === "" ? [] : list.split(",")) {
    const [, first, last = first] = /^(\d{1,5})(?:-(\d{1,5}))?$/.exec(range) ?? [];
    if (first === undefined || Number(last) > maxCpu || Number(first) > Number(last)) return undefined;
    for (let cpu = Number(first); cpu <= Number(last); cpu += 1) {
      // Neither kernel nor kubelet lists a CPU twice; overlaps could make a short text take long.
      if (cpus.has(cpu)) return undefined;
      cpus.add(cpu);
    }
  }
  return cpus;
}

/** Formats CPUs as the kernel does: `0-3,8`. */
export function formatCpus(cpus: CpuSet): string {
  const ranges: (readonly [low: number, high: number])[] = [];
  for (const cpu of [...cpus].sort((a, b) => a - b)) {
    const [low, high] = ranges.at(-1) ?? [];
    if (low !== undefined && high === cpu - 1) ranges[ranges.length - 1] = [low, cpu];
    else ranges.push([cpu, cpu]);
  }
  return ranges.map(([low, high]) => (low === high ? `${low}` : `${low}-${high}`)).join(",");
}
