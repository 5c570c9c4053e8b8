import type { ServerResponse } from "node:http";
import type { Clock } from "../lib/clock.ts";
import type { Viewer } from "./access.ts";
import type { Feed } from "./feed.ts";

/** Maximum number of queued notes for a slow client; beyond it the connection is dropped, and the browser reconnects. */
const maxQueuedNotes = 500;
/** Time limit for a client to read the end of the response, milliseconds; a sleeping machine never does. */
const closeTimeoutMs = 5_000;
/** Maximum duration of a connection, milliseconds: then the browser reconnects and is authorized again. */
const maxConnectionMs = 600_000;
/** The browser's reconnect delay, milliseconds. */
const reconnectDelayMs = 1_000;

interface FeedResponse {
  readonly feed: Feed;
  readonly viewer: Viewer;
  readonly clock: Clock;
  /** Aborts when the server stops, which does not wait for open pages. */
  readonly stopped: AbortSignal;
}

/** Responds with the feed as server-sent events until the browser disconnects. For a client that does not read, only one message in its
 *  connection and the newest message of each kind, shared by all clients, are kept in memory.
 *  @see https://html.spec.whatwg.org/multipage/server-sent-events.html */
export function serveFeed(response: ServerResponse, { feed, viewer, clock, stopped }: FeedResponse): void {
  // A connection reset closes the response, too.
  response.on("error", () => undefined);
  response.writeHead(200, { "Content-Type": "text/event-stream; charset=utf-8" });
  response.write(`retry: ${reconnectDelayMs}\n\n`);
  const waiting = createMessageQueue();
  const flush = () => {
    while (!response.writableEnded && !response.writableNeedDrain) {
      const message = waiting.next();
      if (message === undefined) return;
      response.write(`data: ${message}\n\n`);
    }
  };
  response.on("drain", flush);
  const stop = feed.subscribe({
    ...viewer,
    send(message, about) {
      if (!waiting.add(message, about)) response.destroy();
      else flush();
    },
  });
  const over = () => {
    stop();
    response.end();
    timer.cancel();
    timer = clock.after(closeTimeoutMs, () => void response.destroy());
  };
  let timer = clock.after(maxConnectionMs, over);
  stopped.addEventListener("abort", over, { once: true });
  response.once("close", () => {
    timer.cancel();
    stopped.removeEventListener("abort", over);
    stop();
  });
}

/** Unsent messages, in order. */
function createMessageQueue() {
  const messages = new Map<string | number, string>();
  let [lastNote, notes] = [0, 0];
  return {
    /** @returns false if too many are queued. */
    add(message: string, about: string | undefined): boolean {
      if (about === undefined) notes += 1;
      messages.set(about ?? ++lastNote, message);
      return notes <= maxQueuedNotes;
    },
    next(): string | undefined {
      const [key] = messages.keys();
      if (key === undefined) return undefined;
      const message = messages.get(key);
      messages.delete(key);
      if (typeof key === "number") notes -= 1;
      return message;
    },
  };
}
