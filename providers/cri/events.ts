import {
  type ContainerEventResponse,
  ContainerEventType,
  GetEventsRequest,
  RuntimeServiceService as runtimeService,
  VersionRequest,
} from "../../src/gen/cri.ts";
import {
  ContainerEvent,
  type Envelope,
  EventsService as containerdEvents,
  TaskEvent,
} from "../../src/gen/containerd-events.ts";
import { decodeBounded, runtimeLimits } from "../../src/lib/bounded-decode.ts";
import { CodedError, hasCode } from "../../src/lib/errors.ts";
import type { ClockAndLog } from "../../src/lib/log.ts";
import type { RuntimeEvent } from "../../src/seams/runtime.ts";
import { type GrpcChannel, StreamEndedError } from "./client.ts";

interface RuntimeEventSource {
  readonly name: string;
  events(signal: AbortSignal): AsyncGenerator<RuntimeEvent | undefined>;
}

export interface CriEventsOptions extends ClockAndLog {
  readonly runtime: GrpcChannel;
}

/** Streams events from the runtime's best source: CRI's own events (containerd 2), otherwise containerd's event service. An
 *  unsupported source is tried again on each connection, because the runtime may have been upgraded, and is logged the first
 *  time.
 *  @throws unimplemented if there is no source. */
export function criEvents(options: CriEventsOptions): (signal: AbortSignal) => AsyncGenerator<RuntimeEvent> {
  const { runtime, log } = options;
  const sources: readonly RuntimeEventSource[] = [criSource(runtime), containerdSource(runtime)];
  const unsupported = new Set<string>();
  return async function* events(signal) {
    for (const source of sources) {
      try {
        yield* subscribe(source, options, signal);
        return;
      } catch (error) {
        if (!hasCode(error, "unimplemented")) throw error;
        if (!unsupported.has(source.name))
          log.info({ source: source.name }, "event source not supported by the runtime");
        unsupported.add(source.name);
      }
    }
    throw new CodedError("unimplemented", "the runtime provides no container events");
  };
}

/** Delay after the probing call's response until the subscription counts as established, milliseconds. */
const subscribeDelayMs = 50;

/** Yields `listening`, then the source's events. Go servers send no headers before the first message, so a subscription counts as
 *  established when a later call on the same connection has been answered and the stream has not been refused. CRI-O ends the stream at
 *  once unless `enable_pod_events` is set.
 *  @see https://github.com/cri-o/cri-o/blob/15bf5274e53335d13306a99f47dc15bb22461abf/server/container_events.go */
async function* subscribe(
  source: RuntimeEventSource,
  { runtime, clock }: CriEventsOptions,
  signal: AbortSignal,
): AsyncGenerator<RuntimeEvent> {
  const stop = new AbortController();
  const either = AbortSignal.any([signal, stop.signal]);
  const stream = source.events(either);
  let first = stream.next();
  const established = runtime
    .call(runtimeService.version, VersionRequest.fromPartial({}), either)
    .then(() => clock.sleep(subscribeDelayMs, either));
  try {
    await Promise.race([first, established]).catch((error: unknown) => {
      throw error instanceof StreamEndedError ? new CodedError("unimplemented", "the runtime sends no events") : error;
    });
    yield { kind: "listening" };
    for (let next = await first; !next.done; next = await first) {
      if (next.value) yield next.value;
      first = stream.next();
    }
  } catch (error) {
    if (!signal.aborted) throw error;
  } finally {
    stop.abort();
    await Promise.allSettled([established, first]);
  }
}

function criSource(runtime: GrpcChannel): RuntimeEventSource {
  return {
    name: "CRI GetContainerEvents",
    async *events(signal) {
      const messages = runtime.stream(runtimeService.getContainerEvents, GetEventsRequest.fromPartial({}), signal);
      for await (const message of messages) yield criEvent(message);
    },
  };
}

/** Converts a CRI event. An event of a sandbox itself has the sandbox's ID as its container ID. */
export function criEvent(event: ContainerEventResponse): RuntimeEvent {
  const { containerId, containerEventType, podSandboxStatus, createdAt } = event;
  const sandboxId = podSandboxStatus?.id;
  const podUid = podSandboxStatus?.metadata?.uid;
  return {
    kind: "changed",
    ...(sandboxId !== undefined && { sandboxId }),
    ...(containerId !== sandboxId && { containerId }),
    ...(podUid !== undefined && { podUid }),
    ...(containerEventType === ContainerEventType.CONTAINER_STOPPED_EVENT && { exited: true }),
    ...(containerEventType === ContainerEventType.CONTAINER_DELETED_EVENT && { removed: true }),
    ...(createdAt > 0n && { at: Number(createdAt / 1_000_000n) }),
  };
}

/** containerd deletes a task once its container has ended, just before the CRI status shows it. The exit event comes earlier, but the exits
 *  of all exec probes have the same topic, and no filter separates them. */
const topics = ["/tasks/start", "/tasks/oom", "/tasks/delete", "/containers/create", "/containers/delete"];

function containerdSource(runtime: GrpcChannel): RuntimeEventSource {
  return {
    name: "containerd events",
    async *events(signal) {
      const filters = topics.map((topic) => `namespace==k8s.io,topic=="${topic}"`);
      const messages = runtime.stream(containerdEvents.subscribe, { filters }, signal, {
        "containerd-namespace": "k8s.io",
      });
      for await (const message of messages) yield containerdEvent(message);
    },
  };
}

/** Converts a containerd event, which does not distinguish sandboxes from containers; undefined if it has no payload. */
export function containerdEvent({ topic, event, timestamp }: Envelope): RuntimeEvent | undefined {
  if (!event) return undefined;
  const at = timestamp && { at: timestamp.getTime() };
  if (topic.startsWith("/tasks/")) {
    const { containerId } = decodeBounded(TaskEvent.decode, event.value, runtimeLimits);
    return { kind: "changed", containerId, ...(topic === "/tasks/delete" && { exited: true }), ...at };
  }
  const { id } = decodeBounded(ContainerEvent.decode, event.value, runtimeLimits);
  return { kind: "changed", containerId: id, ...(topic === "/containers/delete" && { removed: true }), ...at };
}
