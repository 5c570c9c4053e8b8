import { type IncomingMessage, type Server, type ServerResponse, createServer } from "node:http";
import type { Duplex } from "node:stream";
import { randomBytes } from "node:crypto";
import type { Clock, Timer } from "../lib/clock.ts";
import { CodedError, throwIfAborted } from "../lib/errors.ts";
import { guardResponses } from "../lib/guard-responses.ts";
import type { ClockAndLog } from "../lib/log.ts";
import type { StreamEndpoint } from "../seams/runtime.ts";
import { connectionPair } from "./connection-pair.ts";
import { streamCreationTimeoutMs, tokenTimeoutMs } from "./timeouts.ts";
import type { ConnectPort } from "./port-forward.ts";
import type { CommandRequest, RunCommand } from "./remote-command.ts";
import { type ServeUpgrade, refuseWithoutUpgrade, serveCommand, serveForward } from "./serving.ts";
import { type UpgradeRequest, type Refusal, plainText, refuse } from "./upgrade.ts";

export type { ConnectPort } from "./port-forward.ts";
export type { CommandRequest, CommandStreams, RunCommand } from "./remote-command.ts";
export type { TerminalSize } from "./terminal-sizes.ts";

/** Serves streams in this process, like the streaming server of a CRI runtime, for runtimes that have none. It does not listen: an
 *  endpoint's connections never leave the process. Disposal closes all connections and waits for their commands.
 *  @see https://github.com/kubernetes/cri-streaming */
export interface StreamServer extends AsyncDisposable {
  /** Creates an endpoint for a command. `run` is called once, when all requested streams are open. The client gets its exit code after
   *  all output; an exception becomes an InternalError with that message. @throws CodedError invalid_argument for a request without a
   *  stream, or with both a terminal and stderr; resource_exhausted if 1000 endpoints are unused. */
  command(request: CommandRequest, run: RunCommand): StreamEndpoint;
  /** Creates an endpoint for connections to a pod. `connect` is called for each connection of the client. `ports` are those of CRI's
   *  PortForwardRequest, needed only for WebSocket. @throws CodedError resource_exhausted if 1000 endpoints are unused. */
  portForward(ports: readonly number[], connect: ConnectPort): StreamEndpoint;
}

export function createStreamServer({ clock, log }: ClockAndLog): StreamServer {
  const tokens = createTokens<ServeUpgrade>(clock);
  const connections = new Map<Duplex, Timer>();
  const sessions = new Set<Promise<void>>();
  const disposed = new AbortController();
  const deps = { clock, log };

  function track(session: Promise<void>): void {
    const done = session
      .catch((error: unknown) => log.error({ err: error }, "stream session failed"))
      .finally(() => sessions.delete(done));
    sessions.add(done);
  }

  const http = createInProcessServer((request, answer, upgrade) => {
    connections.get(request.socket)?.cancel();
    const serve = tokens.take(request.url?.split("?", 1)[0]?.split("/")[2] ?? "");
    if (!serve) return answer({ status: 404, text: "404 page not found" });
    if (request.method !== "GET" && request.method !== "POST")
      return answer({ status: 405, text: "405: Method Not Allowed" });
    const outcome = upgrade ? serve(upgrade) : refuseWithoutUpgrade(request);
    if (outcome instanceof Promise) track(outcome);
    else answer(outcome);
  });

  function endpoint(kind: string, serve: ServeUpgrade): StreamEndpoint {
    const dial = (signal: AbortSignal) => {
      throwIfAborted(signal);
      if (disposed.signal.aborted) throw new CodedError("unavailable", "streaming server is closed");
      const [near, far] = connectionPair();
      connections.set(
        far,
        clock.after(streamCreationTimeoutMs, () => far.destroy()),
      );
      far.on("error", () => undefined);
      far.once("close", () => {
        connections.get(far)?.cancel();
        connections.delete(far);
      });
      http.emit("connection", far);
      return near;
    };
    const path = `/${kind}/${tokens.put(serve)}`;
    return { path, host: "localhost", webSockets: true, dial: async (signal) => dial(signal) };
  }

  return {
    command: (request, run) => endpoint("command", serveCommand(validated(request), run, deps)),
    portForward: (ports, connect) => endpoint("portforward", serveForward(ports, connect, deps)),
    async [Symbol.asyncDispose]() {
      disposed.abort();
      for (const connection of connections.keys()) connection.destroy();
      await Promise.all(sessions);
    },
  };
}

/** Validates a request by CRI's rules. */
function validated(request: CommandRequest): CommandRequest {
  const { stdin, stdout, stderr, tty } = request;
  if (tty && stderr) throw new CodedError("invalid_argument", "tty and stderr cannot both be true");
  if (!stdin && !stdout && !stderr)
    throw new CodedError("invalid_argument", "one of stdin, stdout, or stderr must be set");
  return request;
}

type Handle = (request: IncomingMessage, answer: (refusal: Refusal) => void, asked?: UpgradeRequest) => void;

/** An HTTP server whose connections are passed in. */
function createInProcessServer(handle: Handle): Server {
  const http = guardResponses(createServer({ maxHeaderSize: 1 << 20, requireHostHeader: false }));
  http.on("request", (request: IncomingMessage, response: ServerResponse) => {
    handle(request, ({ status, text, headers }) => {
      response.writeHead(status, { ...plainText, ...headers, Connection: "close" }).end(`${text}\n`);
    });
  });
  http.on("error", () => undefined);
  http.on("upgrade", (request, socket, head) => {
    // Node has taken its own listener away.
    socket.on("error", () => socket.destroy());
    handle(request, (refusal) => refuse(socket, refusal), { request, socket, head });
  });
  return http;
}

/** Values that can be fetched once, each by a secret token. */
interface Tokens<T> {
  /** @returns the token, url-safe. @throws CodedError resource_exhausted if 1000 values are unfetched. */
  put(value: T): string;
  /** The value, once and within a minute. */
  take(token: string): T | undefined;
}

const maxTokens = 1000;

/** The kubelet's streaming server's limits. */
function createTokens<T>(clock: Clock): Tokens<T> {
  // In order of age, because all have the same lifetime.
  const waiting = new Map<string, { readonly value: T; readonly until: number }>();
  return {
    put(value) {
      for (const [token, { until }] of waiting) {
        if (until > clock.monotonic()) break;
        waiting.delete(token);
      }
      if (waiting.size >= maxTokens)
        throw new CodedError("resource_exhausted", "maximum number of in-flight requests exceeded");
      const token = randomBytes(12).toString("base64url");
      waiting.set(token, { value, until: clock.monotonic() + tokenTimeoutMs });
      return token;
    },
    take(token) {
      const entry = waiting.get(token);
      waiting.delete(token);
      return entry && entry.until > clock.monotonic() ? entry.value : undefined;
    },
  };
}
