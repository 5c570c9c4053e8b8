import type { IncomingMessage, Server, ServerResponse } from "node:http";

/** Keeps errors of an HTTP server's requests and responses from ending the process: writing to a disconnected client or an
 *  ended response emits an `error` event, which is fatal without a listener. The connection closes by itself.
 *  @returns the server. */
export function guardResponses<T extends Server>(server: T): T {
  server.prependListener("request", (request: IncomingMessage, response: ServerResponse) => {
    request.on("error", () => undefined);
    response.on("error", () => undefined);
  });
  return server;
}
