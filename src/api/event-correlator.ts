import type { Clock } from "../lib/clock.ts";
import { rfc3339 } from "../lib/rfc3339.ts";
import type { ObjectReference } from "../objects.ts";
import type { EventType } from "../pipeline.ts";
import { createBoundedMap } from "../lib/bounded-map.ts";
import { createTokenBucket } from "../lib/token-bucket.ts";

/** An event as a stage reports it. */
export interface ReportedEvent {
  readonly about: ObjectReference;
  readonly type: EventType;
  readonly reason: string;
  readonly message: string;
  readonly annotations?: Readonly<Record<string, string>>;
}

/** An event to write: a count above 1 updates the event of that name. */
export interface EventToWrite extends ReportedEvent {
  readonly name: string;
  readonly namespace: string;
  /** RFC 3339. */
  readonly firstTimestamp: string;
  readonly lastTimestamp: string;
  readonly count: number;
  /** Key under which the observation is remembered. */
  readonly key: string;
}

const cacheEntries = 4096;
/** From this number of different messages on, events with one reason about one object are combined into one; older messages are
 *  forgotten after the window. */
const maxSimilar = 10;
const similarWindowMs = 600_000;
const combinedPrefix = "(combined from similar events): ";
/** Event budget of an object: this many at once, then one every five minutes. */
const spamBurst = 25;
const spamRefillMs = 300_000;

/** Folds repeated and similar events and drops floods, as client-go's correlator does.
 *  @see https://pkg.go.dev/k8s.io/client-go/tools/record#EventCorrelator */
export function createEventCorrelator(clock: Clock) {
  const aggregate = createAggregator(clock);
  const admit = createSpamFilter(clock);
  const seen = createBoundedMap<Pick<EventToWrite, "name" | "count" | "firstTimestamp">>(cacheEntries);
  const names = createNames(clock);
  return {
    /** Returns the event to write; undefined if the object has exceeded its event budget. */
    observe(happening: ReportedEvent) {
      const { about, message, key } = aggregate(happening);
      const now = rfc3339(clock.now());
      const before = seen.get(key);
      const observation: EventToWrite = {
        ...happening,
        message,
        key,
        name: before?.name ?? names(about.name ?? ""),
        namespace: about.namespace || "default",
        firstTimestamp: before?.firstTimestamp ?? now,
        lastTimestamp: now,
        count: (before?.count ?? 0) + 1,
      };
      seen.set(key, observation);
      return admit(happening) ? observation : undefined;
    },
  };
}

function createAggregator(
  clock: Clock,
): (happening: ReportedEvent) => Pick<ReportedEvent, "about" | "message"> & { key: string } {
  const records = createBoundedMap<{ messages: Set<string>; at: number }>(cacheEntries);
  return ({ about, type, reason, message }) => {
    const group = [...identity(about), type, reason].join("\n");
    const now = clock.monotonic();
    let record = records.get(group);
    if (!record || now - record.at > similarWindowMs) record = { messages: new Set(), at: now };
    record.messages.add(message);
    record.at = now;
    records.set(group, record);
    if (record.messages.size < maxSimilar)
      return { about, message, key: [group, about.fieldPath ?? "", message].join("\n") };
    const oldest = record.messages.values().next();
    if (!oldest.done) record.messages.delete(oldest.value);
    return { about, message: combinedPrefix + message, key: group };
  };
}

function createSpamFilter(clock: Clock): (happening: ReportedEvent) => boolean {
  const buckets = createBoundedMap<() => boolean>(cacheEntries);
  return ({ about, type }) => {
    const key = [...identity(about), type].join("\n");
    const takeToken = buckets.get(key) ?? createTokenBucket(clock, 1000 / spamRefillMs, spamBurst);
    buckets.set(key, takeToken);
    return takeToken();
  };
}

/** Creates event names in the usual form: the object's name and a time in nanoseconds, unique within this process. */
function createNames(clock: Clock): (objectName: string) => string {
  let last = 0n;
  return (objectName) => {
    const now = BigInt(Math.floor(clock.now() * 1000)) * 1000n;
    last = now > last ? now : last + 1n;
    return `${objectName}.${last.toString(16)}`;
  };
}

function identity({ kind, namespace, name, uid, apiVersion }: ObjectReference): string[] {
  return [kind ?? "", namespace ?? "", name ?? "", uid ?? "", apiVersion ?? ""];
}
