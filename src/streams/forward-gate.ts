import type { Clock } from "../lib/clock.ts";
import { CodedError } from "../lib/errors.ts";
import { type ForwardHeaders, parseForwardHeaders } from "./forward-headers.ts";
import type { ForwardSlots, ForwardSlot, SlotResult } from "./forward-slots.ts";
import { streamCreationTimeoutMs } from "./timeouts.ts";
import { protocolError } from "./spdy/frames.ts";
import { createHeaderReader } from "./spdy/header-block.ts";
import type { StreamGate, StreamDecision } from "./spdy/stream-gate.ts";

/** Time for which a runtime may keep a connection that its client has broken off, milliseconds: containerd gives either side a second. */
const releaseDelayMs = 2000;
/** Time for which a client waits for a slot, and the polling interval, milliseconds. A runtime keeps each connection for a second after its
 *  client ends it, so that quick successive connections add up. */
const slotTimeoutMs = 2000;
const slotPollIntervalMs = 50;
/** Maximum number of refused streams before a client is disconnected: Kubernetes' clients give up after one. */
const maxRefusedStreams = 100;

/** A forwarded connection and its streams so far. */
interface ForwardedStreams {
  readonly slot: ForwardSlot;
  readonly kinds: Set<ForwardHeaders["kind"]>;
  /** Number of its streams that have not ended. */
  open: number;
}

interface OpenStream {
  readonly kind: ForwardHeaders["kind"];
  readonly connection: ForwardedStreams;
}

export interface ForwardGateDeps {
  readonly slots: ForwardSlots;
  readonly podUid: string;
  /** The slot of the port-forward session itself, released when the gate is closed. */
  readonly sessionSlot: ForwardSlot;
  readonly clock: Clock;
}

/** Gate of a port-forward to one pod: each connection occupies a slot from its first stream until the runtime has finished with it. Without
 *  a free slot, its error stream gets an error, and the runtime does not see the connection. */
export function createForwardGate({ slots, podUid, sessionSlot, clock }: ForwardGateDeps): StreamGate {
  const reader = createHeaderReader();
  /** Connections that lack a stream, by name. */
  const incomplete = new Map<string, ForwardedStreams>();
  const streams = new Map<number, OpenStream>();
  const closed = new AbortController();
  let lastId = 0;
  let refused = 0;

  function refuse(text?: string): StreamDecision {
    refused += 1;
    if (refused > maxRefusedStreams) throw protocolError(`${maxRefusedStreams} streams were refused`);
    return { kind: "refused", ...(text !== undefined && { text }) };
  }

  function join(id: number, kind: ForwardHeaders["kind"], connection: ForwardedStreams): StreamDecision {
    connection.kinds.add(kind);
    connection.open += 1;
    streams.set(id, { kind, connection });
    return { kind: "passed" };
  }

  function begin(id: number, { kind, connection: name }: ForwardHeaders, result: SlotResult): StreamDecision {
    if (result.kind === "full") return refuse(kind === "error" ? result.text : undefined);
    const connection = { slot: result.slot, kinds: new Set<ForwardHeaders["kind"]>(), open: 0 };
    incomplete.set(name, connection);
    return join(id, kind, connection);
  }

  /** @throws CodedError cancelled if the gate is closed meanwhile. */
  async function waitForSlot(): Promise<SlotResult> {
    const until = clock.monotonic() + slotTimeoutMs;
    let result: SlotResult;
    do {
      await clock.sleep(slotPollIntervalMs, closed.signal);
      result = slots.acquire(podUid, 1);
    } while (result.kind === "full" && clock.monotonic() < until);
    return result;
  }

  /** Releases the slot once the runtime must have finished: it keeps an incomplete connection while it waits for the other stream. */
  function releaseLater({ slot, kinds }: ForwardedStreams): void {
    slot.release(kinds.size < 2 ? streamCreationTimeoutMs : releaseDelayMs);
  }

  return {
    open(id, block) {
      if (id % 2 === 0 || id <= lastId) throw protocolError("streams out of order");
      lastId = id;
      const headers = parseForwardHeaders(id, reader.read(block));
      if (!headers) return refuse();
      const half = incomplete.get(headers.connection);
      if (half?.kinds.has(headers.kind)) return refuse();
      incomplete.delete(headers.connection);
      if (half) return join(id, headers.kind, half);
      const taken = slots.acquire(podUid, 1);
      if (taken.kind === "taken") return begin(id, headers, taken);
      return waitForSlot().then((later) => begin(id, headers, later));
    },
    ended(id, by) {
      const stream = streams.get(id);
      if (!stream) return;
      const { kind, connection } = stream;
      streams.delete(id);
      connection.open -= 1;
      // A runtime ends the error stream last.
      if (by === "server" && kind === "error") connection.slot.release(0);
      if (connection.open > 0) return;
      releaseLater(connection);
      for (const [name, half] of incomplete) if (half === connection) incomplete.delete(name);
    },
    close() {
      closed.abort(new CodedError("cancelled", "the connection is gone"));
      sessionSlot.release(releaseDelayMs);
      for (const { connection } of streams.values()) releaseLater(connection);
      streams.clear();
      incomplete.clear();
    },
  };
}
