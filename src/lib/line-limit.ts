import { createBoundedMap } from "./bounded-map.ts";
import type { Clock } from "./clock.ts";
import { createTokenBucket } from "./token-bucket.ts";

/** Log lines of the same words: so many at once, and so many a second after that. All pods of a node may fail at once. */
const [burst, perSecond] = [200, 5];
/** Sentences that are counted. */
const maxSentences = 1_000;
/** Longest text of a field, characters, most entries of a list, and how deep a field is looked into. */
const [maxText, maxEntries, maxDepth] = [4_096, 200, 4];

/** Decides for each log line, by its sentence, whether it is written: what happens at a target, a plugin or a client must not fill the disk.
 *  @returns undefined for a line that is left out; else how many of its words have been since the last one that was written. */
export function createLineLimit(clock: Pick<Clock, "monotonic">): (sentence: string) => number | undefined {
  const sentences = createBoundedMap<{ readonly take: () => boolean; leftOut: number }>(maxSentences);
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

/** Fields of a log line with texts and lists cut to what a line may have. */
export function boundedFields(fields: Record<string, unknown>): Record<string, unknown> {
  return Object.fromEntries(Object.entries(fields).map(([name, value]) => [name, bounded(value, maxDepth)]));
}

/** The text itself, or its beginning. */
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
