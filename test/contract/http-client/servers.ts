import { type Socket, createServer } from "node:net";
import { createSecureServer, type ServerHttp2Stream } from "node:http2";
import { type TlsOptions, createServer as createTlsServer } from "node:tls";
import type { Duplex } from "node:stream";
import { selfSigned } from "../../fakes/certificate.ts";
import { listen } from "../../harness/ports.ts";

/** What a server does after it has answered. */
export type Ending = "closes" | "resets" | "stays open";

/** A server that writes its answer when it has read a request's head, whatever that says. */
export interface RawServer {
  /** Bytes as a latin1 text; a function gets the request and the server's port. Parts of a list are written 20 ms apart. */
  readonly answer: string | readonly string[] | ((request: string, port: number) => string);
  /** `closes` unless given. */
  readonly ending?: Ending;
  /** Speaks TLS, with these options. */
  readonly tls?: TlsOptions;
  /** Answers as soon as a connection is open, before it has read anything. */
  readonly atOnce?: boolean;
  readonly address?: string;
}

/** A server of HTTP/2 over TLS. */
export interface Http2Server {
  readonly http2: (stream: ServerHttp2Stream, path: string) => void;
  readonly tls?: TlsOptions;
}

export type ServerKind = RawServer | Http2Server;

export interface StartedServer extends AsyncDisposable {
  readonly port: number;
  /** Heads of the requests since the last call. */
  requests(): string[];
}

const certificate = selfSigned("server");

export function startServer(kind: ServerKind): Promise<StartedServer> {
  return "http2" in kind ? startHttp2(kind) : startRaw(kind);
}

async function startRaw(kind: RawServer): Promise<StartedServer> {
  const heads: string[] = [];
  const open = new Set<Duplex>();
  let port = 0;
  const serve = (connection: Socket) => {
    open.add(connection);
    connection.on("error", () => {});
    connection.once("close", () => open.delete(connection));
    let head = "";
    let answered = false;
    const finish = () => {
      answered = true;
      void say(connection, kind, head, port);
    };
    if (kind.atOnce) finish();
    connection.on("data", (chunk: Buffer) => {
      if (answered) return;
      head += chunk.toString("latin1");
      if (!head.includes("\r\n\r\n")) return;
      heads.push(head);
      finish();
    });
  };
  const options = { allowHalfOpen: true, noDelay: true };
  const server = kind.tls
    ? createTlsServer({ ...certificate, ...options, ...kind.tls }, serve)
    : createServer(options, serve);
  if (kind.tls) server.on("tlsClientError", () => {});
  server.on("connection", (socket: Socket) => {
    open.add(socket);
    socket.on("error", () => {}).once("close", () => open.delete(socket));
  });
  port = await listen(server, kind.address);
  return {
    port,
    requests: () => heads.splice(0),
    async [Symbol.asyncDispose]() {
      for (const connection of open) connection.destroy();
      server.close();
    },
  };
}

async function say(connection: Socket, { answer, ending = "closes" }: RawServer, head: string, port: number) {
  const whole = typeof answer === "function" ? answer(head, port) : answer;
  for (const [index, part] of (typeof whole === "string" ? [whole] : whole).entries()) {
    if (index > 0) await new Promise((resolve) => setTimeout(resolve, 20));
    connection.write(Buffer.from(part, "latin1"));
  }
  if (ending === "closes") connection.end();
  if (ending === "resets") setTimeout(() => connection.resetAndDestroy(), 40);
}

async function startHttp2({ http2, tls }: Http2Server): Promise<StartedServer> {
  const heads: string[] = [];
  const open = new Set<Socket>();
  const server = createSecureServer({ ...certificate, allowHTTP1: false, ...tls });
  server.on("connection", (socket: Socket) => {
    open.add(socket);
    socket.on("error", () => {}).once("close", () => open.delete(socket));
  });
  server.on("sessionError", () => {});
  server.on("stream", (stream: ServerHttp2Stream, headers) => {
    stream.on("error", () => {});
    const shown = Object.entries(headers).map(([name, value]) => `${name}: ${String(value)}`);
    heads.push(shown.toSorted().join("\n"));
    http2(stream, headers[":path"] ?? "");
  });
  const port = await listen(server);
  return {
    port,
    requests: () => heads.splice(0),
    async [Symbol.asyncDispose]() {
      for (const socket of open) socket.destroy();
      server.close();
    },
  };
}
