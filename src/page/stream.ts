import type { ServerResponse } from "node:http";
import type { Clock } from "../lib/clock.ts";
import type { Feed } from "./feed.ts";

/** Unsent bytes at which a page that reads too slowly is dropped; it connects again by itself. A message of a node with all its pods is
 *  some 100 KB. */
const mostUnsent = 16 << 20;
/** After so long a page has to connect again, and its rights are looked at again, milliseconds. */
const longestMs = 600_000;
/** The browser's pause before it connects again, milliseconds. */
const againMs = 1_000;

interface Answered {
  readonly feed: Feed;
  /** True for a node that the viewer may see. */
  readonly sees: (node: string) => boolean;
  readonly clock: Clock;
  /** Aborts when the server stops, which does not wait for pages that are open. */
  readonly stopped: AbortSignal;
}

/** Answers with the feed as server-sent events until the browser goes.
 *  @see https://html.spec.whatwg.org/multipage/server-sent-events.html */
export function answerFeed(response: ServerResponse, { feed, sees, clock, stopped }: Answered): void {
  response.writeHead(200, { "Content-Type": "text/event-stream; charset=utf-8" });
  response.write(`retry: ${againMs}\n\n`);
  const end = feed.listen({
    sees,
    send(message) {
      response.write(`data: ${message}\n\n`);
      if (response.writableLength > mostUnsent) response.destroy();
    },
  });
  const over = () => void response.end();
  const timer = clock.after(longestMs, over);
  stopped.addEventListener("abort", over, { once: true });
  response.once("close", () => {
    timer.cancel();
    stopped.removeEventListener("abort", over);
    end();
  });
}
