import { createBoundedMap } from "./bounded-map.ts";
import type { Clock } from "./clock.ts";
import { createTokenBucket } from "./token-bucket.ts";

/** Rate limit of lines with the same message: burst and lines per second. All pods of a node may fail at once. */
const [burst, perSecond] = [200, 5];
/** Maximum number of messages tracked. */
const maxMessages = 1_000;
/** Maximum text length of a field, characters; maximum entries of a list; maximum depth to which fields are truncated. */
const [maxText, maxEntries, maxDepth] = [4_096, 200, 4];

/** Decides for each log line, by its message, whether it is written: a target, a plugin or a client must not be able to fill
 *  the disk.
 *  @returns undefined for a line to drop; otherwise how many lines with its message were dropped since the last one written. */
export function createLineLimit(clock: Pick<Clock, "monotonic">): (sentence: string) => number | undefined {
  const sentences = createBoundedMap<{ readonly take: () => boolean; leftOut: number }>(maxMessages);
  return (sentence) => {
    const known = sentences.get(sentence);
    const counted = known ?? { take: createTokenBucket(clock, perSecond, burst), leftOut: 0 };
    if (!known) sentences.set(sentence, counted);
    if (!counted.take()) {
      counted.leftOut += 1;
      return undefined;
    }
    const { leftOut } = counted;
    counted.leftOut = 0;
    return leftOut;
  };
}

/** Truncates texts and lists in the fields of a log line. */
export function boundedFields(fields: Record<string, unknown>): Record<string, unknown> {
  return Object.fromEntries(Object.entries(fields).map(([name, value]) => [name, bounded(value, maxDepth)]));
}

/** The text, truncated if it is too long. */
export function boundedText(text: string): string {
  return text.length <= maxText ? text : `${text.slice(0, maxText)}… (${text.length - maxText} more characters)`;
}

function bounded(value: unknown, depth: number): unknown {
  if (typeof value === "string") return boundedText(value);
  if (typeof value !== "object" || value === null || value instanceof Error) return value;
  if (Array.isArray(value)) {
    const kept = value.slice(0, maxEntries).map((entry) => bounded(entry, depth - 1));
    return value.length <= maxEntries ? kept : [...kept, `… (${value.length - maxEntries} more)`];
  }
  const isPlain = Object.getPrototypeOf(value) === Object.prototype;
  if (!isPlain || depth <= 0) return value;
  const entries = Object.entries(value).slice(0, maxEntries);
  return Object.fromEntries(entries.map(([name, each]) => [name, bounded(each, depth - 1)]));
}
