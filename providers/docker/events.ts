import type { IncomingMessage } from "node:http";
import { CodedError } from "../../src/lib/errors.ts";
import { nodeLabel, podUidLabel } from "../../src/pod/labels.ts";
import type { RuntimeEvent } from "../../src/seams/runtime.ts";
import { askForStream } from "./client/answer-stream.ts";
import { engineInfo } from "./client/engine-info.ts";
import { codedDockerError } from "./client/errors.ts";
import { jsonLines } from "./client/json-lines.ts";
import { sandboxIdLabel, sandboxType, typeLabel } from "./container/names.ts";
import type { DockerParts } from "./parts.ts";
import { nanoseconds } from "./client/times.ts";

/** What changes a container's state (probes alone make three other events of each exec). */
const actions = ["create", "start", "die", "oom", "pause", "unpause", "rename", "update", "destroy"];

/** What changes which images there are, or what the daemon tells of itself. */
const otherActions = ["pull", "load", "import", "tag", "untag", "delete", "reload"];

/** One stream of the daemon's events: those about this node's sandboxes and containers are passed on, and what the daemon has told
 *  holds until others tell of a change. A stream that follows another begins where
 *  that one ended: the daemon keeps the latest of its events. Some may be told twice.
 *  @see https://docs.docker.com/reference/api/engine/version/v1.41/#tag/System/operation/SystemEvents */
export function dockerEvents(parts: DockerParts): (signal: AbortSignal) => AsyncGenerator<RuntimeEvent> {
  const { docker, config, nodeName, following } = parts;
  // A label would keep images out, which carry none.
  const filters = JSON.stringify({ type: ["container", "image", "daemon"], event: [...actions, ...otherActions] });
  /** Nanoseconds since the epoch by the daemon's clock. */
  let since: bigint | undefined;
  const listen = async (signal: AbortSignal) => {
    // The head of the answer comes just before the subscription stands: what happens between is told by `since`.
    since ??= nanoseconds((await engineInfo(parts, signal)).SystemTime);
    const query = { filters, since: seconds(since) };
    return docker.call(
      (engine, abortSignal) => askForStream(engine, { path: "/events", query, signal: abortSignal }),
      signal,
      "none",
    );
  };
  return async function* events(signal) {
    let answer: IncomingMessage | undefined;
    try {
      answer = await listen(signal);
      following.begin();
      yield { is: "listening" };
      for await (const message of jsonLines(answer)) {
        const event = message as EngineEvent;
        since = timeOf(event) ?? since;
        if (event.Type !== "container") following.changed();
        else if (event.Actor?.Attributes?.[nodeLabel] === nodeName) {
          const told = runtimeEvent(event);
          if (told) yield told;
        }
      }
    } catch (error) {
      if (signal.aborted) return;
      throw codedDockerError(error, config.socket, signal);
    } finally {
      following.end();
      answer?.destroy();
    }
    if (!signal.aborted) throw new CodedError("unavailable", "the Docker Engine ended its stream of events");
  };
}

export interface EngineEvent {
  readonly Type?: string;
  readonly Action?: string;
  readonly Actor?: { readonly ID?: string; readonly Attributes?: Readonly<Record<string, string>> };
  readonly timeNano?: number;
}

/** The hint in an event of the daemon; undefined when it is about no container. */
export function runtimeEvent({ Action = "", Actor }: EngineEvent): RuntimeEvent | undefined {
  if (!Actor?.ID || !actions.includes(Action)) return undefined;
  const labels = Actor.Attributes ?? {};
  const podUid = labels[podUidLabel];
  const sandboxId = labels[typeLabel] === sandboxType ? Actor.ID : labels[sandboxIdLabel];
  return {
    is: "changed",
    ...(sandboxId !== undefined && { sandboxId }),
    ...(sandboxId !== Actor.ID && { containerId: Actor.ID }),
    ...(podUid !== undefined && { podUid }),
    ...(Action === "die" && { exited: true }),
    ...(Action === "destroy" && { removed: true }),
  };
}

/** JSON numbers are exact to 256 ns at today's times: a microsecond earlier is told again rather than missed. */
function timeOf({ timeNano }: EngineEvent): bigint | undefined {
  return timeNano === undefined ? undefined : BigInt(timeNano) - 1000n;
}

/** As the Engine API takes times: seconds and nine decimals. */
function seconds(time: bigint): string {
  return `${time / 1_000_000_000n}.${String(time % 1_000_000_000n).padStart(9, "0")}`;
}
