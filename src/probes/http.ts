import { type IncomingMessage, request } from "node:http";
import { isIP } from "node:net";
import type { Duplex } from "node:stream";
import { connect as startTls } from "node:tls";
import { messageOf } from "../lib/errors.ts";
import type { Host } from "../seams/host.ts";
import { brokenConnection, dialFailure } from "./failure-text.ts";
import { type ProbeRequest, urlOf } from "./http-request.ts";
import { type Outcome, maxOutputBytes } from "./outcome.ts";

const maxRedirects = 10;

/** An answer and as much of its body as a probe looks at. */
interface Answer {
  readonly status: number;
  readonly location: string | undefined;
  readonly body: string;
}

/** The server's answer broke off in its body: that says nothing of the container. */
class BodyError extends Error {}

/** GET from the target, on a connection of its own, over TLS without verification for https. 200 to 399 is a success.
 *  Redirects are followed as long as they stay on the host; where they leave it the probe ends with a warning.
 *  @see https://kubernetes.io/docs/tasks/configure-pod-container/configure-liveness-readiness-startup-probes/#http-probes */
export async function probeHttp(
  dialer: Pick<Host, "dial">,
  first: ProbeRequest,
  signal: AbortSignal,
): Promise<Outcome> {
  let hop = first;
  try {
    for (let redirects = 0; ; redirects++) {
      const answer = await exchange(dialer, hop, signal);
      const next = redirected(hop, answer);
      if (!next || next.host !== first.host) return judge(answer);
      hop = next;
      if (redirects + 1 >= maxRedirects) return failed(hop, `stopped after ${maxRedirects} redirects`);
    }
  } catch (error) {
    if (error instanceof BodyError)
      return { is: "error", state: "failure", error: timedOutOr(signal, "while reading body", error) };
    return failed(hop, messageOf(timedOutOr(signal, "while awaiting headers", error)));
  }
}

function failed(hop: ProbeRequest, why: string): Outcome {
  return { is: "failure", output: `Get "${urlOf(hop)}": ${why}` };
}

function judge({ status, body }: Answer): Outcome {
  if (status >= 200 && status < 300) return { is: "success", output: body };
  if (status >= 300 && status < 400)
    return { is: "warning", output: `Probe terminated redirects, Response body: ${body}` };
  return { is: "failure", output: `HTTP probe failed with statuscode: ${status}` };
}

/** The request that a redirect asks for; undefined when the answer is none. */
function redirected(hop: ProbeRequest, { status, location }: Answer): ProbeRequest | undefined {
  if (![301, 302, 303, 307, 308].includes(status) || location === undefined) return undefined;
  const base = urlOf(hop);
  if (!URL.canParse(location, base)) throw new Error(`failed to parse Location header ${JSON.stringify(location)}`);
  const url = new URL(location, base);
  const scheme = url.protocol === "https:" ? "https" : "http";
  // A Host header of the probe's own stays only where the server named no host.
  const hostHeader = URL.canParse(location) ? url.host : hop.hostHeader;
  return {
    scheme,
    host: url.hostname.replace(/^\[|\]$/g, ""),
    port: Number(url.port || (scheme === "https" ? 443 : 80)),
    target: url.pathname + url.search,
    hostHeader,
    headers: hop.headers,
  };
}

async function exchange(dialer: Pick<Host, "dial">, hop: ProbeRequest, signal: AbortSignal): Promise<Answer> {
  const connection = await dial(dialer, hop, signal);
  const stop = () => connection.destroy();
  signal.addEventListener("abort", stop, { once: true });
  connection.on("error", () => {});
  try {
    if (signal.aborted) stop();
    const response = await send(hop.scheme === "https" ? overTls(connection, hop.host) : connection, hop);
    return { status: response.statusCode ?? 0, location: response.headers.location, body: await readBody(response) };
  } finally {
    signal.removeEventListener("abort", stop);
    stop();
  }
}

async function dial(dialer: Pick<Host, "dial">, { host, port }: ProbeRequest, signal: AbortSignal): Promise<Duplex> {
  try {
    return await dialer.dial({ host, port }, signal);
  } catch (error) {
    throw new Error(dialFailure(error, host, port), { cause: error });
  }
}

function overTls(connection: Duplex, host: string): Duplex {
  return startTls({ socket: connection, rejectUnauthorized: false, ...(isIP(host) === 0 && { servername: host }) });
}

function send(connection: Duplex, { target, hostHeader, headers }: ProbeRequest): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    const outgoing = request({
      createConnection: () => connection,
      method: "GET",
      path: target,
      headers: { ...Object.fromEntries(headers), Host: hostHeader, Connection: "close" },
      maxHeaderSize: 1024 * 1024,
    });
    outgoing.once("response", resolve);
    outgoing.on("error", (error) => reject(new Error(brokenConnection(error), { cause: error })));
    outgoing.end();
  });
}

async function readBody(response: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  let length = 0;
  try {
    for await (const chunk of response as AsyncIterable<Buffer>) {
      chunks.push(chunk);
      length += chunk.length;
      if (length >= maxOutputBytes) break;
    }
  } catch (error) {
    throw new BodyError(brokenConnection(error), { cause: error });
  }
  return Buffer.concat(chunks).subarray(0, maxOutputBytes).toString();
}

function timedOutOr(signal: AbortSignal, when: string, error: unknown): unknown {
  if (!signal.aborted) return error;
  return new Error(
    `context deadline exceeded (Client.Timeout ${when === "while reading body" ? "or context cancellation" : "exceeded"} ${when})`,
    { cause: error },
  );
}
