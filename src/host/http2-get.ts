import { type ClientHttp2Session, type ClientHttp2Stream, type OutgoingHttpHeaders, connect } from "node:http2";
import type { TLSSocket } from "node:tls";
import { type ByteReader, createByteReader } from "../lib/byte-reader.ts";
import { goQuoteBytes } from "../lib/go-quote.ts";
import { requestUri } from "../lib/go-url.ts";
import type { HttpRequest } from "../lib/http-get.ts";
import type { OpenResponse } from "./http-response.ts";
import { authorityOf, ownAuthorization } from "./http-request.ts";

/** Connection-specific header fields, not sent over HTTP/2. */
const dropped = [
  "Host",
  "Connection",
  "Proxy-Connection",
  "Transfer-Encoding",
  "Upgrade",
  "Keep-Alive",
  "Content-Length",
];

/** Sends a GET over HTTP/2 and reads the response's head. @param end closes the connection. @throws Error with Go's text. */
export async function openHttp2(tls: TLSSocket, request: HttpRequest, end: () => void): Promise<OpenResponse> {
  const session = connect("https://pod", { createConnection: () => tls, settings: { enablePush: false } });
  const failure = failureOf(session, tls);
  const stream = session.request(headersOf(request), { endStream: true });
  const reader = createByteReader(stream);
  const { status, location, length } = await Promise.race([headOf(stream), failure]);
  return {
    status,
    location,
    length,
    read: (maxBytes) => Promise.race([readStream(stream, reader, maxBytes), failure]),
    [Symbol.dispose]() {
      session.destroy();
      end();
    },
  };
}

/** Rejects if the connection ends before the response does. */
function failureOf(session: ClientHttp2Session, tls: TLSSocket): Promise<never> {
  const { promise, reject } = Promise.withResolvers<never>();
  let farewell = "unexpected EOF";
  session.once("goaway", (code: number, lastStream: number, debug?: Uint8Array) => {
    const shown = goQuoteBytes(Buffer.from(debug ?? []).toString("latin1"));
    farewell = `http2: server sent GOAWAY and closed the connection; LastStreamID=${lastStream}, ErrCode=${nameOfError(code)}, debug=${shown}`;
  });
  const lost = () => reject(new Error(farewell));
  session.on("error", reject).once("close", lost);
  tls.once("end", lost).once("close", lost);
  promise.catch(() => {});
  return promise;
}

function headersOf(request: HttpRequest): OutgoingHttpHeaders {
  const fields: OutgoingHttpHeaders = {
    ":method": "GET",
    ":authority": authorityOf(request),
    ":scheme": "https",
    ":path": requestUri(request.url),
  };
  for (const [name, values] of [...request.headers, ...ownAuthorization(request)]) {
    if (dropped.includes(name)) continue;
    if (name === "User-Agent") {
      if (values[0]) fields["user-agent"] = values[0];
    } else fields[name.toLowerCase()] = name === "Cookie" ? values.flatMap((value) => value.split("; ")) : [...values];
  }
  return fields;
}

function headOf(stream: ClientHttp2Stream): Promise<Pick<OpenResponse, "status" | "location" | "length">> {
  const { promise, resolve, reject } = Promise.withResolvers<Pick<OpenResponse, "status" | "location" | "length">>();
  stream.once("response", (headers) => {
    const length = headers["content-length"];
    resolve({
      status: headers[":status"] ?? 0,
      location: headers.location,
      length: length === undefined ? undefined : Number(length),
    });
  });
  stream.on("error", () => reject(resetError(stream))).once("close", () => reject(resetError(stream)));
  return promise;
}

/** HTTP/2's names of errors, by code. @see https://www.rfc-editor.org/rfc/rfc9113#section-7 */
const errorNames = [
  "NO_ERROR",
  "PROTOCOL_ERROR",
  "INTERNAL_ERROR",
  "FLOW_CONTROL_ERROR",
  "SETTINGS_TIMEOUT",
  "STREAM_CLOSED",
  "FRAME_SIZE_ERROR",
  "REFUSED_STREAM",
  "CANCEL",
  "COMPRESSION_ERROR",
  "CONNECT_ERROR",
  "ENHANCE_YOUR_CALM",
  "INADEQUATE_SECURITY",
  "HTTP_1_1_REQUIRED",
];

function nameOfError(code: number): string {
  return errorNames[code] ?? `unknown error code 0x${code.toString(16)}`;
}

function resetError({ id, rstCode }: ClientHttp2Stream): Error {
  return new Error(`stream error: stream ID ${id}; ${nameOfError(rstCode)}; received from peer`);
}

async function readStream(stream: ClientHttp2Stream, reader: ByteReader, maxBytes: number): Promise<Buffer> {
  const parts: Buffer[] = [];
  for (let missing = maxBytes; missing > 0; ) {
    const part = await reader.read(missing).catch(() => {
      throw resetError(stream);
    });
    if (!part) break;
    parts.push(part);
    missing -= part.length;
  }
  if (stream.rstCode) throw resetError(stream);
  return Buffer.concat(parts);
}
