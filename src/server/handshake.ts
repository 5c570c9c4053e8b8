import { type IncomingMessage, request as httpRequest } from "node:http";
import { type Duplex, addAbortSignal } from "node:stream";
import { CodedError, abortError, messageOf } from "../lib/errors.ts";
import { untilAborted } from "../lib/runnables.ts";
import type { StreamEndpoint } from "../seams/runtime.ts";
import { addAbortListener } from "node:events";

/** The endpoint's response to an upgrade request. `stream` begins with the first byte after the response's header. */
export type HandshakeResult =
  | { readonly kind: "upgraded"; readonly response: IncomingMessage; readonly stream: Duplex }
  | { readonly kind: "answered"; readonly response: IncomingMessage };

/** Requests an upgrade to SPDY from an endpoint. @param protocol version of the application protocol. @param signal ends only the handshake;
 *  an upgraded stream belongs to the caller. @throws CodedError unavailable if the endpoint is unreachable or breaks off; the signal's reason. */
export async function handshake(
  endpoint: StreamEndpoint,
  protocol: string,
  signal: AbortSignal,
): Promise<HandshakeResult> {
  const connection = await endpoint.dial(signal);
  const answered = Promise.withResolvers<HandshakeResult>();
  using _ = addAbortListener(signal, () => connection.destroy(abortError(signal)));
  try {
    if (signal.aborted) throw abortError(signal);
    const request = httpRequest({
      createConnection: () => connection,
      method: "POST",
      path: endpoint.path,
      headers: {
        Host: endpoint.host,
        Connection: "Upgrade",
        Upgrade: "SPDY/3.1",
        "X-Stream-Protocol-Version": protocol,
        "Content-Length": "0",
      },
      maxHeaderSize: 1 << 20,
    });
    request.once("upgrade", (response, stream, head) => {
      if (head.length > 0) stream.unshift(head);
      answered.resolve({ kind: "upgraded", response, stream });
    });
    request.once("response", (response) => answered.resolve({ kind: "answered", response }));
    request.once("error", (error) => answered.reject(error));
    request.end();
    return await untilAborted(answered.promise, signal);
  } catch (cause) {
    connection.destroy();
    if (cause instanceof CodedError) throw cause;
    throw new CodedError("unavailable", `error dialing backend: ${messageOf(cause)}`, { cause });
  }
}

/** Maximum length of a forwarded refusal, bytes. */
const maxRefusalBytes = 1 << 12;

/** Text of an endpoint's refusal; ends its connection. @throws the signal's reason, or the connection's error. */
export async function refusalText(response: IncomingMessage, signal: AbortSignal): Promise<string> {
  addAbortSignal(signal, response);
  let body = Buffer.alloc(0);
  try {
    for await (const part of response as AsyncIterable<Buffer>) {
      body = Buffer.concat([body, part]);
      if (body.length >= maxRefusalBytes) break;
    }
  } finally {
    response.socket.destroy();
  }
  return body.subarray(0, maxRefusalBytes).toString().trim() || `status code ${response.statusCode ?? 0}`;
}
