import type { Clock } from "../lib/clock.ts";
import { CodedError } from "../lib/errors.ts";
import { type ForwardStream, forwardStream } from "./forward-headers.ts";
import type { ForwardPlaces, Place, Taken } from "./forward-places.ts";
import { creationMs } from "./patience.ts";
import { protocolError } from "./spdy/frames.ts";
import { createHeaderReader } from "./spdy/header-block.ts";
import type { StreamGate, Verdict } from "./spdy/stream-gate.ts";

/** Time for which a runtime may keep a connection that its client has broken off, milliseconds: containerd gives either side a second. */
const settleMs = 2000;
/** Time for which a client waits for a slot, and the polling interval, milliseconds. A runtime keeps each connection for a second after its
 *  client ends it, so that quick successive connections add up. */
const patienceMs = 2000;
const lookEveryMs = 50;
/** Maximum number of refused streams before a client is disconnected: Kubernetes' clients give up after one. */
const mostRefused = 100;

/** A forwarded connection and its streams so far. */
interface Connection {
  readonly place: Place;
  readonly kinds: Set<ForwardStream["kind"]>;
  /** Number of its streams that have not ended. */
  open: number;
}

interface Stream {
  readonly kind: ForwardStream["kind"];
  readonly of: Connection;
}

export interface ForwardGateDeps {
  readonly places: ForwardPlaces;
  readonly podUid: string;
  /** The slot of the port-forward session itself, released when the gate is closed. */
  readonly own: Place;
  readonly clock: Clock;
}

/** Gate of a port-forward to one pod: each connection occupies a slot from its first stream until the runtime has finished with it. Without
 *  a free slot, its error stream gets an error, and the runtime does not see the connection. */
export function forwardGate({ places, podUid, own, clock }: ForwardGateDeps): StreamGate {
  const reader = createHeaderReader();
  /** Connections that lack a stream, by name. */
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

  /** @throws CodedError cancelled if the gate is closed meanwhile. */
  async function placeInTime(): Promise<Taken> {
    const until = clock.monotonic() + patienceMs;
    let taken: Taken;
    do {
      await clock.sleep(lookEveryMs, closed.signal);
      taken = places.take(podUid, 1);
    } while (taken.is === "full" && clock.monotonic() < until);
    return taken;
  }

  /** Releases the slot once the runtime must have finished: it keeps an incomplete connection while it waits for the other stream. */
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
      // A runtime ends the error stream last.
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
