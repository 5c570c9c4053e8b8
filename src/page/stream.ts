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

/** Answers with the feed as server-sent events until the browser goes.
 *  @param sees true for a node that the viewer may see.
 *  @see https://html.spec.whatwg.org/multipage/server-sent-events.html */
export function answerFeed(
  response: ServerResponse,
  { feed, sees, clock }: { readonly feed: Feed; readonly sees: (node: string) => boolean; readonly clock: Clock },
): void {
  response.writeHead(200, { "Content-Type": "text/event-stream; charset=utf-8" });
  response.write(`retry: ${againMs}\n\n`);
  const end = feed.listen({
    sees,
    send(message) {
      response.write(`data: ${message}\n\n`);
      if (response.writableLength > mostUnsent) response.destroy();
    },
  });
  const timer = clock.after(longestMs, () => response.end());
  response.once("close", () => {
    timer.cancel();
    end();
  });
}
