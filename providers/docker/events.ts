import type { IncomingMessage } from "node:http";
import { CodedError } from "../../src/lib/errors.ts";
import { nodeLabel, podUidLabel } from "../../src/pod/labels.ts";
import type { RuntimeEvent } from "../../src/seams/runtime.ts";
import { requestStream } from "./client/response-stream.ts";
import { engineInfo } from "./client/engine-info.ts";
import { codedDockerError } from "./client/errors.ts";
import { jsonLines } from "./client/json-lines.ts";
import { sandboxIdLabel, sandboxType, typeLabel } from "./container/names.ts";
import type { DockerParts } from "./parts.ts";
import { nanoseconds } from "./client/times.ts";

/** Events that change a container's state. Others are filtered out, such as the three that each exec probe causes. */
const actions = ["create", "start", "die", "oom", "pause", "unpause", "rename", "update", "destroy"];

/** Events that change the list of images, or the daemon's info. */
const otherActions = ["pull", "load", "import", "tag", "untag", "delete", "reload"];

/** The daemon's event stream. Events of this node's sandboxes and containers are passed on; other events invalidate cached
 *  responses. A stream resumes where the previous one ended, since the daemon keeps its latest events; some may be repeated.
 *  @see https://docs.docker.com/reference/api/engine/version/v1.41/#tag/System/operation/SystemEvents */
export function dockerEvents(parts: DockerParts): (signal: AbortSignal) => AsyncGenerator<RuntimeEvent> {
  const { docker, config, nodeName, cache } = parts;
  // A label filter would drop image events, which carry no labels.
  const filters = JSON.stringify({ type: ["container", "image", "daemon"], event: [...actions, ...otherActions] });
  /** Nanoseconds since the epoch by the daemon's clock. */
  let since: bigint | undefined;
  const listen = async (signal: AbortSignal) => {
    // The response's headers arrive just before the subscription is active: `since` covers the gap.
    since ??= nanoseconds((await engineInfo(parts, signal)).SystemTime);
    const query = { filters, since: seconds(since) };
    return docker.call(
      (engine, abortSignal) => requestStream(engine, { path: "/events", query, signal: abortSignal }),
      signal,
      "none",
    );
  };
  return async function* events(signal) {
    let response: IncomingMessage | undefined;
    try {
      response = await listen(signal);
      cache.start();
      yield { kind: "listening" };
      for await (const message of jsonLines(response, parts.host)) {
        const event = message as EngineEvent;
        since = eventTime(event) ?? since;
        if (event.Type !== "container") cache.invalidate();
        else if (event.Actor?.Attributes?.[nodeLabel] === nodeName) {
          const converted = runtimeEvent(event);
          if (converted) yield converted;
        }
      }
    } catch (error) {
      if (signal.aborted) return;
      throw codedDockerError(error, config.socket, signal);
    } finally {
      cache.stop();
      response?.destroy();
    }
    if (!signal.aborted) throw new CodedError("unavailable", "the Docker Engine closed its event stream");
  };
}

export interface EngineEvent {
  readonly Type?: string;
  readonly Action?: string;
  readonly Actor?: { readonly ID?: string; readonly Attributes?: Readonly<Record<string, string>> };
  readonly timeNano?: number;
}

/** Converts an event of the daemon; undefined unless it is about a container. */
export function runtimeEvent({ Action = "", Actor, timeNano }: EngineEvent): RuntimeEvent | undefined {
  if (!Actor?.ID || !actions.includes(Action)) return undefined;
  const labels = Actor.Attributes ?? {};
  const podUid = labels[podUidLabel];
  const sandboxId = labels[typeLabel] === sandboxType ? Actor.ID : labels[sandboxIdLabel];
  return {
    kind: "changed",
    ...(sandboxId !== undefined && { sandboxId }),
    ...(sandboxId !== Actor.ID && { containerId: Actor.ID }),
    ...(podUid !== undefined && { podUid }),
    ...(Action === "die" && { exited: true }),
    ...(Action === "destroy" && { removed: true }),
    ...(timeNano !== undefined && { at: Math.trunc(timeNano / 1_000_000) }),
  };
}

/** Returns the time of an event, minus a microsecond: JSON numbers represent current times only to 256 ns, and events should
 *  rather be repeated than missed. */
function eventTime({ timeNano }: EngineEvent): bigint | undefined {
  return timeNano === undefined ? undefined : BigInt(timeNano) - 1000n;
}

/** Formats a time for the Engine API: seconds with nine decimals. */
function seconds(time: bigint): string {
  return `${time / 1_000_000_000n}.${String(time % 1_000_000_000n).padStart(9, "0")}`;
}
