import { hostIn } from "../lib/url-text.ts";
import { type ClientHttp2Session, type ClientHttp2Stream, connect, constants } from "node:http2";
import { connect as tlsConnect, type TLSSocket } from "node:tls";
import type { Clock, Timer } from "../lib/clock.ts";
import { CodedError } from "../lib/errors.ts";
import type { Credentials } from "./credentials.ts";

/** One HTTP/2 connection: accepts streams until it is full, closed by GOAWAY, or dead. */
export type Http2Session = ReturnType<typeof manage>;

export interface SessionDeps {
  readonly clock: Clock;
  /** Maximum number of streams per session. */
  readonly maxStreams: number;
  /** Interval between pings and timeout of a ping, milliseconds. */
  readonly pingIntervalMs: number;
  readonly pingTimeoutMs: number;
  /** Called when a ping has timed out: the connection is dead. */
  readonly onPingTimeout: () => void;
  /** Time after which an idle session is closed, milliseconds. */
  readonly idleTimeoutMs: number;
  readonly connectTimeoutMs: number;
}

/** Bytes of a response that the server may send before this side has read them; of all responses of a session, four times that. */
const windowBytes = 2 ** 20;

/** Connects to the API server over HTTP/2.
 *  @returns undefined if the server speaks only HTTP/1.1.
 *  @throws CodedError unavailable. */
export async function dialHttp2(credentials: Credentials, deps: SessionDeps): Promise<Http2Session | undefined> {
  const socket = await dialTls(credentials, deps);
  if (socket.alpnProtocol !== "h2") {
    socket.destroy();
    return undefined;
  }
  const session = connect(credentials.server, {
    createConnection: () => socket,
    settings: { initialWindowSize: windowBytes },
  });
  widenWindow(session);
  return manage(session, credentials.generation, deps);
}

/** Lets the server send more than Node's default before it is read, once the session is connected. */
export function widenWindow(session: ClientHttp2Session): void {
  session.once("connect", () => {
    // Node emits the event a tick after the connection: the server may have closed it by then.
    if (!session.destroyed) session.setLocalWindowSize(4 * windowBytes);
  });
}

function dialTls({ server, tls }: Credentials, { clock, connectTimeoutMs }: SessionDeps): Promise<TLSSocket> {
  const { promise, resolve, reject } = Promise.withResolvers<TLSSocket>();
  const host = hostIn(server);
  const socket = tlsConnect({
    ...tls,
    servername: tls.servername ?? serverName(host),
    host,
    port: Number(server.port || 443),
    ALPNProtocols: ["h2", "http/1.1"],
  });
  const failed = (cause: Error) =>
    reject(new CodedError("unavailable", `${server.origin}: ${cause.message}`, { cause }));
  const timer = clock.deadline(connectTimeoutMs, () =>
    socket.destroy(new Error(`no connection within ${connectTimeoutMs} ms`)),
  );
  socket.setNoDelay(true);
  socket.once("error", failed);
  socket.once("close", () => timer.cancel());
  socket.once("secureConnect", () => {
    timer.cancel();
    socket.off("error", failed);
    resolve(socket);
  });
  return promise;
}

/** Server name for TLS; empty for an IP address, which RFC 6066 does not allow there. */
const serverName = (host: string) => (/^[\d.]+$|:/.test(host) ? "" : host);

interface StreamKind {
  readonly isWatch: boolean;
  /** The caller writes a body, and ends it. */
  readonly hasBody: boolean;
}

function manage(session: ClientHttp2Session, generation: number, deps: SessionDeps) {
  const { clock, maxStreams, idleTimeoutMs } = deps;
  let streams = 0;
  let retired = false;
  const watches = new Set<ClientHttp2Stream>();
  let idle: Timer | undefined;
  // The session's errors reach its streams; it has no other listener.
  session.on("error", () => undefined);
  session.on("goaway", () => void (retired = true));
  const stopPing = pingSession(session, deps);
  session.once("close", () => {
    stopPing();
    idle?.cancel();
  });
  const rest = () => {
    if (session.destroyed) return;
    if (retired) session.close();
    else idle = clock.after(idleTimeoutMs, () => session.close());
  };
  /** Stops accepting streams; closes after the last one has ended. */
  const retire = () => {
    retired = true;
    if (streams === 0) session.close();
  };
  return {
    generation,
    get closed(): boolean {
      return session.closed || session.destroyed;
    },
    get hasRoom(): boolean {
      return (
        !retired &&
        !session.closed &&
        !session.destroyed &&
        streams < Math.min(maxStreams, session.remoteSettings.maxConcurrentStreams ?? maxStreams)
      );
    },
    open(headers: Readonly<Record<string, string>>, { isWatch, hasBody }: StreamKind): ClientHttp2Stream {
      idle?.cancel();
      streams += 1;
      const stream = session.request(headers, { endStream: !hasBody });
      if (isWatch) watches.add(stream);
      // The reader of the response gets the error, too; a cancelled stream has no reader.
      stream.on("error", () => undefined);
      stream.once("close", () => {
        streams -= 1;
        watches.delete(stream);
        if (streams === 0) rest();
      });
      return stream;
    },
    retire,
    /** Retires the session and ends its watches, which would otherwise last for minutes, as if the server had ended them. */
    replace() {
      retire();
      for (const stream of watches) stream.close(constants.NGHTTP2_NO_ERROR);
    },
    destroy: (): void => session.destroy(undefined, constants.NGHTTP2_CANCEL),
  };
}

/** Pings a session, and destroys it when a ping times out: a connection may be cut silently. @returns a function that stops the
 *  pings. */
export function pingSession(
  session: ClientHttp2Session,
  {
    clock,
    pingIntervalMs,
    pingTimeoutMs,
    onPingTimeout,
  }: Pick<SessionDeps, "clock" | "pingIntervalMs" | "pingTimeoutMs" | "onPingTimeout">,
): () => void {
  let timer: Timer;
  const giveUp = () => {
    session.destroy(new CodedError("unavailable", `the API server did not answer a ping within ${pingTimeoutMs} ms`));
    onPingTimeout();
  };
  const beat = () => {
    // A session that breaks is destroyed just before it emits its close event.
    if (session.destroyed) return;
    timer = clock.deadline(pingTimeoutMs, giveUp);
    const sent = session.ping((error) => {
      if (error || session.destroyed) return;
      timer.cancel();
      timer = clock.after(pingIntervalMs, beat);
    });
    if (!sent) timer.cancel();
  };
  timer = clock.after(pingIntervalMs, beat);
  return () => timer.cancel();
}
