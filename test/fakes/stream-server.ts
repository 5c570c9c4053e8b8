import { type IncomingMessage, createServer } from "node:http";
import type { Duplex } from "node:stream";
import type { Clock } from "../../src/lib/clock.ts";
import { createLogger } from "../../src/lib/log.ts";
import type { ConnectPort, StreamEndpoint } from "../../src/seams/runtime.ts";
import { commandProtocols, serveCommandOverSpdy } from "../../src/streams/command-spdy.ts";
import { commandSubprotocols, serveCommandOverWebSocket } from "../../src/streams/command-websocket.ts";
import { serveForwardOverSpdy } from "../../src/streams/port-forward-spdy.ts";
import {
  forwardSubprotocols,
  serveForwardOverWebSocket,
  tunnelSubprotocol,
} from "../../src/streams/port-forward-websocket.ts";
import { forwardProtocol, forwardTo } from "../../src/streams/port-forward.ts";
import type { CommandRequest, CommandRunner } from "../../src/streams/remote-command.ts";
import {
  type Refusal,
  type Upgrade,
  acceptSpdy,
  acceptWebSocket,
  isWebSocket,
  negotiateSpdy,
  negotiateWebSocket,
} from "../../src/streams/upgrade.ts";
import { tunnelStream } from "../../src/streams/websocket/tunnel.ts";
import { connectionPair } from "./connection-pair.ts";
import { never } from "./signals.ts";

/** Serves an upgrade request until the client is gone, or refuses it. */
export type ServeUpgrade = (request: IncomingMessage, upgrade: Upgrade) => Promise<Refusal | void>;

const log = createLogger(5, { write: () => undefined });

export function serveCommand(command: CommandRequest, run: CommandRunner, clock: Clock): ServeUpgrade {
  const deps = { clock, log, signal: never };
  return async (request, upgrade) => {
    if (!isWebSocket(request)) {
      const protocol = negotiateSpdy(request, commandProtocols);
      if (typeof protocol !== "string") return protocol;
      return serveCommandOverSpdy({ socket: acceptSpdy(upgrade, protocol), protocol }, command, run, deps);
    }
    const subprotocol = negotiateWebSocket(request, commandSubprotocols);
    if (typeof subprotocol !== "string") return subprotocol;
    const ws = await acceptWebSocket(request, upgrade, subprotocol);
    return ws && serveCommandOverWebSocket({ ws, subprotocol }, command, run, deps);
  };
}

export function serveForward(ports: readonly number[], connect: ConnectPort, clock: Clock): ServeUpgrade {
  const forward = forwardTo(connect, log);
  const acquireSlot = () => Promise.resolve({ kind: "taken", slot: { release: () => undefined } } as const);
  const overSpdy = (socket: Duplex) => serveForwardOverSpdy({ socket, forward, acquireSlot, clock });
  return async (request, upgrade) => {
    if (!isWebSocket(request)) {
      const protocol = negotiateSpdy(request, [forwardProtocol]);
      return typeof protocol === "string" ? overSpdy(acceptSpdy(upgrade, protocol)) : protocol;
    }
    const subprotocol = negotiateWebSocket(request, forwardSubprotocols);
    if (typeof subprotocol !== "string") return subprotocol;
    const ws = await acceptWebSocket(request, upgrade, subprotocol);
    if (!ws) return undefined;
    if (subprotocol === tunnelSubprotocol) return overSpdy(tunnelStream(ws));
    return serveForwardOverWebSocket({ ws, subprotocol }, ports, forward, clock);
  };
}

/** Refuses an upgrade over HTTP. */
export function refuse(socket: Duplex, { status, text, headers = {} }: Refusal): void {
  const lines = Object.entries({ ...headers, Connection: "close" }).map(([name, value]) => `${name}: ${value}`);
  socket.end(`HTTP/1.1 ${status} Refused\r\n${lines.join("\r\n")}\r\n\r\n${text}`);
}

/** A streaming server within this process, as a runtime has one. */
export interface StreamServer extends AsyncDisposable {
  command(request: CommandRequest, run: CommandRunner): StreamEndpoint;
  portForward(ports: readonly number[], connect: ConnectPort): StreamEndpoint;
}

export function createStreamServer(clock: Clock): StreamServer {
  const sessions = new Set<Promise<void>>();
  const connections = new Set<Duplex>();
  function endpoint(serve: ServeUpgrade): StreamEndpoint {
    const http = createServer();
    http.on("upgrade", (request, socket, head) => {
      socket.on("error", () => undefined);
      sessions.add(serve(request, { socket, head }).then((refusal) => refusal && refuse(socket, refusal)));
    });
    const dial = () => {
      const [near, far] = connectionPair();
      connections.add(far);
      far.on("error", () => undefined);
      http.emit("connection", far);
      return Promise.resolve(near);
    };
    return { path: "/", host: "localhost", dial };
  }
  return {
    command: (request, run) => endpoint(serveCommand(request, run, clock)),
    portForward: (ports, connect) => endpoint(serveForward(ports, connect, clock)),
    async [Symbol.asyncDispose]() {
      for (const connection of connections) connection.destroy();
      await Promise.all(sessions);
    },
  };
}
