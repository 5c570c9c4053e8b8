import type { Clock } from "../lib/clock.ts";
import { CodedError } from "../lib/errors.ts";
import { type ForwardStream, forwardStream } from "./forward-headers.ts";
import type { ForwardPlaces, Place, Taken } from "./forward-places.ts";
import { creationMs } from "./patience.ts";
import { protocolError } from "./spdy/frames.ts";
import { createHeaderReader } from "./spdy/header-block.ts";
import type { StreamGate, Verdict } from "./spdy/stream-gate.ts";

/** How long a runtime may go on with a connection that its client has broken off, milliseconds: containerd gives either side a second. */
const settleMs = 2000;
/** How long a client waits for a place, milliseconds, and how often it is looked for: a runtime goes on for a second with each connection
 *  whose client ends first, so that one after another, quickly, they come to many. */
const patienceMs = 2000;
const lookEveryMs = 50;
/** Streams that may be refused to a client before it is cut off: Kubernetes' clients give up after one. */
const mostRefused = 100;

/** A connection that is forwarded, as far as its streams stand. */
interface Connection {
  readonly place: Place;
  readonly kinds: Set<ForwardStream["kind"]>;
  /** Streams of it that are not over. */
  open: number;
}

interface Stream {
  readonly kind: ForwardStream["kind"];
  readonly of: Connection;
}

export interface ForwardGateDeps {
  readonly places: ForwardPlaces;
  readonly podUid: string;
  /** The place of the port-forward itself, given back when the gate is closed. */
  readonly own: Place;
  readonly clock: Clock;
}

/** The gate of a port-forward to one pod: each of its connections has a place, from its first stream until the runtime has done with it.
 *  Without a place its error stream says so, and the runtime hears nothing of it. */
export function forwardGate({ places, podUid, own, clock }: ForwardGateDeps): StreamGate {
  const reader = createHeaderReader();
  /** Connections that lack a stream, by their names. */
  const halves = new Map<string, Connection>();
  const streams = new Map<number, Stream>();
  const closed = new AbortController();
  let lastId = 0;
  let refused = 0;

  function refuse(text?: string): Verdict {
    refused += 1;
    if (refused > mostRefused) throw protocolError(`${mostRefused} streams were refused`);
    return { is: "refused", ...(text !== undefined && { text }) };
  }

  function join(id: number, kind: ForwardStream["kind"], of: Connection): Verdict {
    of.kinds.add(kind);
    of.open += 1;
    streams.set(id, { kind, of });
    return { is: "passed" };
  }

  function begin(id: number, { kind, connection: name }: ForwardStream, taken: Taken): Verdict {
    if (taken.is === "full") return refuse(kind === "error" ? taken.text : undefined);
    const connection = { place: taken.place, kinds: new Set<ForwardStream["kind"]>(), open: 0 };
    halves.set(name, connection);
    return join(id, kind, connection);
  }

  /** @throws CodedError cancelled when the gate is closed meanwhile. */
  async function placeInTime(): Promise<Taken> {
    const until = clock.monotonic() + patienceMs;
    let taken: Taken;
    do {
      await clock.sleep(lookEveryMs, closed.signal);
      taken = places.take(podUid, 1);
    } while (taken.is === "full" && clock.monotonic() < until);
    return taken;
  }

  /** Where the runtime has not said that it is done with a connection: half of one it keeps as long as it waits for the rest. */
  function freeLater({ place, kinds }: Connection): void {
    place.free(kinds.size < 2 ? creationMs : settleMs);
  }

  return {
    open(id, block) {
      if (id % 2 === 0 || id <= lastId) throw protocolError("streams out of order");
      lastId = id;
      const about = forwardStream(id, reader.read(block));
      if (!about) return refuse();
      const half = halves.get(about.connection);
      if (half?.kinds.has(about.kind)) return refuse();
      halves.delete(about.connection);
      if (half) return join(id, about.kind, half);
      const taken = places.take(podUid, 1);
      if (taken.is === "taken") return begin(id, about, taken);
      return placeInTime().then((later) => begin(id, about, later));
    },
    ended(id, by) {
      const stream = streams.get(id);
      if (!stream) return;
      const { kind, of } = stream;
      streams.delete(id);
      of.open -= 1;
      // The error stream is the last that a runtime ends.
      if (by === "server" && kind === "error") of.place.free(0);
      if (of.open > 0) return;
      freeLater(of);
      for (const [name, half] of halves) if (half === of) halves.delete(name);
    },
    close() {
      closed.abort(new CodedError("cancelled", "the connection is gone"));
      own.free(settleMs);
      for (const { of } of streams.values()) freeLater(of);
      streams.clear();
      halves.clear();
    },
  };
}
