import type { IncomingMessage, Server, ServerResponse } from "node:http";

/** Has errors of an HTTP server's requests and responses end nothing: writing to a client that has gone, or to a response that has ended,
 *  is an `error` event of the response, and without a listener that ends the process. The connection closes by itself.
 *  @returns the server. */
export function guardResponses<T extends Server>(server: T): T {
  server.prependListener("request", (request: IncomingMessage, response: ServerResponse) => {
    request.on("error", () => undefined);
    response.on("error", () => undefined);
  });
  return server;
}
