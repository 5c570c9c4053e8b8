import type { Clock } from "../lib/clock.ts";
import type { Host } from "../seams/host.ts";
import { diskUsage, inodeUsage } from "./disk-usage.ts";

/** Disk usage on the target, shared by all callers. */
export interface DiskMeter {
  /** Bytes on disk below each path, without other file systems; missing paths are omitted. Measurements younger than
   *  `maxAgeMs` are reused. @throws failed_precondition if the target cannot measure. */
  bytes(paths: readonly string[], maxAgeMs: number, signal: AbortSignal): Promise<ReadonlyMap<string, number>>;
  /** Number of files and directories below each path; empty if the target's `du` cannot count them. */
  inodes(paths: readonly string[], maxAgeMs: number, signal: AbortSignal): Promise<ReadonlyMap<string, number>>;
}

/** Measurements unused for this long are dropped, milliseconds. */
const forgetMs = 300_000;

/** Measures disk usage with a cache shared by all callers. */
export function createDiskMeter({ host, clock }: { readonly host: Host; readonly clock: Clock }): DiskMeter {
  return {
    bytes: createCachedMeter((paths, signal) => diskUsage(host, paths, signal), clock),
    inodes: createCachedMeter((paths, signal) => inodeUsage(host, paths, signal), clock),
  };
}

type Walk = (paths: readonly string[], signal: AbortSignal) => Promise<ReadonlyMap<string, number>>;

interface Measurement {
  /** Undefined for a missing path. */
  readonly size: number | undefined;
  readonly at: number;
}

function createCachedMeter(walk: Walk, clock: Clock): DiskMeter["bytes"] {
  const known = new Map<string, Measurement>();
  return async (paths, maxAgeMs, signal) => {
    const now = clock.monotonic();
    for (const [path, { at }] of known) if (now - at > forgetMs) known.delete(path);
    const stale = paths.filter((path) => now - (known.get(path)?.at ?? Number.NEGATIVE_INFINITY) >= maxAgeMs);
    const sizes = await walk([...new Set(stale)], signal);
    for (const path of stale) known.set(path, { size: sizes.get(path), at: clock.monotonic() });
    return new Map(
      paths.flatMap((path) => {
        const size = known.get(path)?.size;
        return size === undefined ? [] : [[path, size] as const];
      }),
    );
  };
}
