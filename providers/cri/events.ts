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
import type { Clock } from "../../src/lib/clock.ts";
import { CodedError, hasCode } from "../../src/lib/errors.ts";
import type { Logger } from "../../src/lib/log.ts";
import type { RuntimeEvent } from "../../src/seams/runtime.ts";
import type { Channel } from "./client.ts";

/** A runtime's way of telling what happens. */
interface Source {
  readonly name: string;
  events(signal: AbortSignal): AsyncGenerator<RuntimeEvent | undefined>;
}

export interface CriEventsOptions {
  readonly runtime: Channel;
  readonly clock: Clock;
  readonly log: Logger;
}

/** Events from the best source that the runtime has: CRI's own (containerd 2), else containerd's event service. What it lacks
 *  is asked once a connection (a runtime may come back newer) and logged when the answer is new.
 *  @throws unimplemented when it has neither. */
export function criEvents(options: CriEventsOptions): (signal: AbortSignal) => AsyncGenerator<RuntimeEvent> {
  const { runtime, log } = options;
  const sources: readonly Source[] = [criSource(runtime), containerdSource(runtime)];
  const lacking = new Set<string>();
  return async function* events(signal) {
    for (const source of sources) {
      try {
        yield* standing(source, options, signal);
        return;
      } catch (error) {
        if (!hasCode(error, "unimplemented")) throw error;
        if (!lacking.has(source.name))
          log.info({ source: source.name }, "the runtime does not have this source of events");
        lacking.add(source.name);
      }
    }
    throw new CodedError("unimplemented", "the runtime has no events");
  };
}

/** How long after an answer on the same connection a subscription sent before it is taken to stand, milliseconds. */
const settleMs = 50;

/** `listening`, then what the source tells. Servers written in Go send nothing on a stream before its first message: that a
 *  subscription stands shows in the answer to a later call on the same connection, and in no refusal coming with it. */
async function* standing(
  source: Source,
  { runtime, clock }: CriEventsOptions,
  signal: AbortSignal,
): AsyncGenerator<RuntimeEvent> {
  const stop = new AbortController();
  const either = AbortSignal.any([signal, stop.signal]);
  const stream = source.events(either);
  let first = stream.next();
  const stands = runtime
    .call(runtimeService.version, VersionRequest.fromPartial({}), either)
    .then(() => clock.sleep(settleMs, either));
  try {
    await Promise.race([first, stands]);
    yield { is: "listening" };
    for (let next = await first; !next.done; next = await first) {
      if (next.value) yield next.value;
      first = stream.next();
    }
  } catch (error) {
    if (!signal.aborted) throw error;
  } finally {
    stop.abort();
    await Promise.allSettled([stands, first]);
  }
}

function criSource(runtime: Channel): Source {
  return {
    name: "CRI GetContainerEvents",
    async *events(signal) {
      const messages = runtime.stream(runtimeService.getContainerEvents, GetEventsRequest.fromPartial({}), signal);
      for await (const message of messages) yield criEvent(message);
    },
  };
}

/** The hint in a CRI event: an event of the sandbox itself carries the sandbox's ID as its container. */
export function criEvent({ containerId, containerEventType, podSandboxStatus }: ContainerEventResponse): RuntimeEvent {
  const sandboxId = podSandboxStatus?.id;
  const podUid = podSandboxStatus?.metadata?.uid;
  return {
    is: "changed",
    ...(sandboxId !== undefined && { sandboxId }),
    ...(containerId !== sandboxId && { containerId }),
    ...(podUid !== undefined && { podUid }),
    ...(containerEventType === ContainerEventType.CONTAINER_STOPPED_EVENT && { exited: true }),
    ...(containerEventType === ContainerEventType.CONTAINER_DELETED_EVENT && { removed: true }),
  };
}

/** A task is deleted when its container has ended, just before CRI's status shows it. Its exit is told earlier, but the exit of every
 *  command that a probe starts is too, and no filter keeps the two apart. */
const topics = ["/tasks/start", "/tasks/oom", "/tasks/delete", "/containers/create", "/containers/delete"];

function containerdSource(runtime: Channel): Source {
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

/** The hint in an event of containerd, which does not tell sandboxes from containers; undefined when there is none. */
export function containerdEvent({ topic, event }: Envelope): RuntimeEvent | undefined {
  if (!event) return undefined;
  if (topic.startsWith("/tasks/")) {
    const { containerId } = TaskEvent.decode(event.value);
    return { is: "changed", containerId, ...(topic === "/tasks/delete" && { exited: true }) };
  }
  const { id } = ContainerEvent.decode(event.value);
  return { is: "changed", containerId: id, ...(topic === "/containers/delete" && { removed: true }) };
}
