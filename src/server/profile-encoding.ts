import type { HeapProfiler, Profiler, Runtime } from "node:inspector";
import { promisify } from "node:util";
import { gzip } from "node:zlib";
import { Function as PprofFunction, Line, Location, Profile, Sample, StringTable, ValueType } from "pprof-format";

const zip = promisify(gzip);

/** When a profile was taken. */
export interface ProfileTimes {
  /** Milliseconds since the epoch. */
  readonly startedAt: number;
  readonly durationMs: number;
}

/** A call path with a value for each measure. */
interface Stack {
  /** Innermost frame first. */
  readonly frames: readonly Runtime.CallFrame[];
  readonly values: readonly number[];
}

/** The measures of a profile's values: `type` in `unit`. */
type Measure = readonly [type: string, unit: string];

/** Encodes a CPU profile for pprof: samples, and the nanoseconds for which the thread was not idle.
 *  @param periodUs sampling interval, microseconds.
 *  @see https://github.com/google/pprof/blob/main/proto/profile.proto */
export function encodeCpuProfile(
  { nodes, samples = [], timeDeltas = [] }: Profiler.Profile,
  times: ProfileTimes,
  periodUs: number,
): Promise<Buffer> {
  const microseconds = new Map<number, number>();
  for (const [index, id] of samples.entries())
    microseconds.set(id, (microseconds.get(id) ?? 0) + Math.max(0, timeDeltas[index] ?? 0));
  const framesOf = framesByNode(nodes);
  const stacks = nodes
    .filter(({ hitCount = 0, callFrame }) => hitCount > 0 && callFrame.functionName !== "(idle)")
    .map(({ id, hitCount = 0 }) => ({
      frames: framesOf(id),
      values: [hitCount, Math.round((microseconds.get(id) ?? 0) * 1000)],
    }));
  const measures = [
    ["samples", "count"],
    ["cpu", "nanoseconds"],
  ] as const;
  return encode(stacks, measures, times, periodUs * 1000);
}

/** Encodes a sampled heap profile: bytes of the objects that were allocated while it was taken and are still in use.
 *  @param periodBytes average bytes between samples. */
export function encodeHeapProfile(
  { head }: HeapProfiler.SamplingHeapProfile,
  times: ProfileTimes,
  periodBytes: number,
): Promise<Buffer> {
  const stacks: Stack[] = [];
  const pending = [{ node: head, frames: [] as readonly Runtime.CallFrame[] }];
  for (let next = pending.pop(); next; next = pending.pop()) {
    const { node, frames: callers } = next;
    const frames = node === head ? callers : [node.callFrame, ...callers];
    if (node.selfSize > 0) stacks.push({ frames, values: [node.selfSize] });
    pending.push(...node.children.map((child) => ({ node: child, frames })));
  }
  return encode(stacks, [["inuse_space", "bytes"]], times, periodBytes);
}

/** @returns a function that lists the frames from a node of a CPU profile to the root, without the root itself. */
function framesByNode(nodes: readonly Profiler.ProfileNode[]): (id: number) => readonly Runtime.CallFrame[] {
  const parents = new Map<number, Profiler.ProfileNode>();
  for (const node of nodes) for (const child of node.children ?? []) parents.set(child, node);
  const byId = new Map(nodes.map((node) => [node.id, node]));
  return (id) => {
    const frames: Runtime.CallFrame[] = [];
    for (let node = byId.get(id); node && parents.has(node.id); node = parents.get(node.id))
      frames.push(node.callFrame);
    return frames;
  };
}

/** @param period between two samples, in the unit of the last measure. */
async function encode(
  stacks: readonly Stack[],
  measures: readonly Measure[],
  { startedAt, durationMs }: ProfileTimes,
  period: number,
): Promise<Buffer> {
  const stringTable = new StringTable();
  const valueTypes = measures.map(
    ([type, unit]) => new ValueType({ type: stringTable.dedup(type), unit: stringTable.dedup(unit) }),
  );
  const places = createPlaces(stringTable);
  const sample = stacks.map(
    ({ frames, values }) => new Sample({ locationId: frames.map(places.locationOf), value: [...values] }),
  );
  const periodType = valueTypes.at(-1);
  const profile = new Profile({
    sampleType: valueTypes,
    sample,
    ...places.lists(),
    stringTable,
    timeNanos: BigInt(Math.round(startedAt)) * 1_000_000n,
    durationNanos: Math.round(durationMs * 1e6),
    ...(periodType && { periodType }),
    period,
  });
  return zip(await profile.encodeAsync());
}

/** Creates the lists of functions and of locations in them, which samples refer to by number, from 1. */
function createPlaces(stringTable: StringTable) {
  const functions: PprofFunction[] = [];
  const locations: Location[] = [];
  const known = new Map<string, number>();
  return {
    /** @returns the number of a frame's location, which is the function that it is in. */
    locationOf({ functionName, url, scriptId, lineNumber, columnNumber }: Runtime.CallFrame): number {
      const key = `${scriptId}:${lineNumber}:${columnNumber}:${functionName}`;
      const found = known.get(key);
      if (found !== undefined) return found;
      const id = functions.length + 1;
      const name = stringTable.dedup(functionName || "(anonymous)");
      const startLine = lineNumber + 1;
      functions.push(new PprofFunction({ id, name, systemName: name, filename: stringTable.dedup(url), startLine }));
      locations.push(new Location({ id, line: [new Line({ functionId: id, line: startLine })] }));
      known.set(key, id);
      return id;
    },
    lists: () => ({ function: functions, location: locations }),
  };
}
