import { type IncomingMessage, request as httpRequest } from "node:http";
import type { Duplex } from "node:stream";
import { CodedError, abortError, messageOf } from "../lib/errors.ts";
import { untilAborted } from "../lib/service-group.ts";
import type { Endpoint } from "../seams/runtime.ts";
import { withoutToken } from "./websocket-token.ts";

/** The endpoint's answer to a request for another protocol. `stream` begins with the first byte after the answer's head. */
export type HandshakeAnswer =
  | { readonly is: "upgraded"; readonly response: IncomingMessage; readonly stream: Duplex }
  | { readonly is: "answered"; readonly response: IncomingMessage };

/** Headers that an endpoint needs; nothing else goes onward, credentials least of all. */
const forwarded = /^(connection|upgrade|user-agent|origin|x-stream-protocol-version|sec-websocket-.+)$/;

/** Asks an endpoint for the protocol that a client asked us for: the client's method and protocol headers, the endpoint's
 *  own path and host.
 *  @param signal ends the handshake only; an upgraded stream is the caller's.
 *  @throws CodedError unavailable when the endpoint cannot be reached or breaks off; the signal's reason. */
export async function handshake(
  endpoint: Endpoint,
  client: IncomingMessage,
  signal: AbortSignal,
): Promise<HandshakeAnswer> {
  const connection = await endpoint.dial(signal);
  const answered = Promise.withResolvers<HandshakeAnswer>();
  const onAbort = () => connection.destroy(abortError(signal));
  signal.addEventListener("abort", onAbort, { once: true });
  try {
    if (signal.aborted) throw abortError(signal);
    const request = httpRequest({
      createConnection: () => connection,
      method: client.method ?? "GET",
      path: endpoint.path,
      headers: onwardHeaders(client, endpoint.host),
      maxHeaderSize: 1 << 20,
    });
    request.once("upgrade", (response, stream, head) => {
      if (head.length > 0) stream.unshift(head);
      answered.resolve({ is: "upgraded", response, stream });
    });
    request.once("response", (response) => answered.resolve({ is: "answered", response }));
    request.once("error", (error) => answered.reject(error));
    request.end();
    return await untilAborted(answered.promise, signal);
  } catch (cause) {
    connection.destroy();
    if (cause instanceof CodedError) throw cause;
    throw new CodedError("unavailable", `error dialing backend: ${messageOf(cause)}`, { cause });
  } finally {
    signal.removeEventListener("abort", onAbort);
  }
}

function onwardHeaders({ rawHeaders, method }: IncomingMessage, host: string): string[] {
  const headers = ["Host", host];
  for (let at = 0; at + 1 < rawHeaders.length; at += 2) {
    const [name = "", value = ""] = rawHeaders.slice(at, at + 2);
    const lower = name.toLowerCase();
    if (!forwarded.test(lower)) continue;
    const onward = lower === "sec-websocket-protocol" ? withoutToken(value) : value;
    if (onward !== "") headers.push(name, onward);
  }
  if (method === "POST") headers.push("Content-Length", "0");
  return headers;
}
