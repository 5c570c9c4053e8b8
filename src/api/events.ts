import { ignoreNotFound } from "../lib/errors.ts";
import type { ClockAndLog } from "../lib/log.ts";
import type { Runnable } from "../lib/runnables.ts";
import type { CoreEvent, ObjectReference } from "../objects.ts";
import type { EventSink, EventType } from "../pipeline.ts";
import { ApiError } from "./api-error.ts";
import type { ApiClient } from "./client.ts";
import { createEventCorrelator, type EventToWrite } from "./event-correlator.ts";
import { createRateLimit } from "../lib/token-bucket.ts";

export interface EventRecorderDeps extends ClockAndLog {
  readonly client: ApiClient;
  /** Reporting component, such as "kubelet". */
  readonly component: string;
  /** The node's name. */
  readonly host: string;
  /** KubeletConfiguration.eventRecordQPS and eventBurst. */
  readonly qps: number;
  readonly burst: number;
}

/** Largest number of queued events; beyond it the oldest are dropped. */
const maxQueued = 1000;
/** Number of attempts to write an event, and the delay between them: client-go's values. */
const maxTries = 12;
const retryDelayMs = 10_000;
const requestTimeoutMs = 10_000;

/** Writes events to the API server in order. `event` only queues; an unreachable server delays the queue.
 *  @see https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/event-v1/ */
export function createEventRecorder(deps: EventRecorderDeps): EventSink & Runnable {
  const { clock, log } = deps;
  const client = deps.client.limited(createRateLimit(clock, deps));
  const correlator = createEventCorrelator(clock);
  const queue: EventToWrite[] = [];
  let wake = Promise.withResolvers<void>();
  let dropped = 0;

  const write = async (observation: EventToWrite, signal: AbortSignal) => {
    for (let tried = 1; ; tried += 1) {
      try {
        return await writeEvent(client, deps, observation, clock.within(requestTimeoutMs, signal));
      } catch (err) {
        if (signal.aborted) return;
        if (err instanceof ApiError || tried >= maxTries) {
          return log.debug({ err, reason: observation.reason, about: observation.about.name }, "cannot record event");
        }
      }
      await clock.sleep(tried === 1 ? retryDelayMs * clock.jitter(0, 1) : retryDelayMs, signal).catch(() => undefined);
    }
  };
  return {
    name: "events",
    event(about, type, reason, message, annotations) {
      const observation = correlator.observe({ about, type, reason, message, ...(annotations && { annotations }) });
      if (!observation) return;
      queue.push(observation);
      if (queue.length > maxQueued) {
        queue.shift();
        if (dropped++ === 0) log.warn({ queued: maxQueued }, "event queue is full; dropping the oldest events");
      }
      wake.resolve();
    },
    async run(signal) {
      signal.addEventListener("abort", () => wake.resolve(), { once: true });
      while (!signal.aborted) {
        await wake.promise;
        wake = Promise.withResolvers<void>();
        for (let next = queue.shift(); next && !signal.aborted; next = queue.shift()) await write(next, signal);
        dropped = 0;
      }
    },
  };
}

/** Creates an event, or increments the count of an existing one. @throws the client's errors. */
export async function writeEvent(
  client: Pick<ApiClient, "create" | "patch">,
  reporter: Pick<EventRecorderDeps, "component" | "host">,
  observation: EventToWrite,
  signal: AbortSignal,
): Promise<void> {
  const { name, namespace, count, lastTimestamp, message } = observation;
  const path = `/api/v1/namespaces/${namespace}/events`;
  if (count > 1) {
    const body = { count, lastTimestamp, message };
    const patched = await ignoreNotFound(client.patch(`${path}/${name}`, { type: "strategic", body }, { signal }));
    // The server deletes events after an hour, or this one was never created.
    if (patched !== undefined) return;
  }
  await client.create(path, eventObject(reporter, observation), { signal });
}

function eventObject(
  { component, host }: Pick<EventRecorderDeps, "component" | "host">,
  observation: EventToWrite,
): CoreEvent {
  const { name, namespace, annotations, about, type, reason, message, firstTimestamp, lastTimestamp, count } =
    observation;
  return {
    apiVersion: "v1",
    kind: "Event",
    metadata: { name, namespace, ...(annotations && { annotations: { ...annotations } }) },
    involvedObject: about,
    type,
    reason,
    message,
    firstTimestamp,
    lastTimestamp,
    count,
    source: { component, host },
    reportingComponent: component,
    reportingInstance: host,
  };
}

/** Wraps the event sink `written`: each event is also passed to `report`. */
export function reportedEvents(
  written: EventSink & Runnable,
  report: (about: ObjectReference, type: EventType, reason: string, message: string) => void,
): EventSink & Runnable {
  return {
    ...written,
    event(about, type, reason, message, annotations) {
      report(about, type, reason, message);
      written.event(about, type, reason, message, annotations);
    },
  };
}
