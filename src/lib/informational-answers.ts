import { subscribe, unsubscribe } from "node:diagnostics_channel";
import type { ClientHttp2Stream } from "node:http2";

/** Maximum number of informational responses (100 Continue, 103 Early Hints) before a response; a server needs only a few. */
const maxInformational = 100;

/** Published by Node for each request of an HTTP/2 client, regardless of the library that made it.
 *  @see https://nodejs.org/api/diagnostics_channel.html#http2 */
const created = "http2.client.stream.created";

/** Until it is disposed of, closes HTTP/2 connections of this process whose server sends more than 100 informational responses to
 *  one request. Node emits an event for each of them: a server that sends nothing else would use a whole CPU and 180 MiB of memory. */
export function limitInformationalAnswers(): Disposable {
  const watch = (message: unknown): void => {
    const { stream } = message as { readonly stream: ClientHttp2Stream };
    let count = 0;
    stream.on("headers", () => {
      count += 1;
      if (count > maxInformational)
        stream.session?.destroy(new Error(`the server sent more than ${maxInformational} informational responses`));
    });
  };
  subscribe(created, watch);
  return { [Symbol.dispose]: () => void unsubscribe(created, watch) };
}
