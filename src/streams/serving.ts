import type { IncomingMessage } from "node:http";
import type { WebSocket } from "ws";
import { type CommandDeps, commandOverSpdy, commandProtocols } from "./command-spdy.ts";
import { commandOverWebSocket, commandSubprotocols } from "./command-websocket.ts";
import { forwardOverSpdy, forwardProtocol } from "./port-forward-spdy.ts";
import { forwardOverWebSocket, forwardSubprotocols, tunnelSubprotocol } from "./port-forward-websocket.ts";
import type { ConnectPort } from "./port-forward.ts";
import type { CommandRequest, RunCommand } from "./remote-command.ts";
import {
  type Asked,
  type Refusal,
  acceptSpdy,
  acceptWebSocket,
  isWebSocket,
  negotiateSpdy,
  negotiateWebSocket,
} from "./upgrade.ts";
import { tunnel } from "./websocket/tunnel.ts";

/** Serves an upgrade request until the client is gone, or refuses it. */
export type Serve = (asked: Asked) => Promise<void> | Refusal;

/** Serves one command in the client's protocol. */
export function serveCommand(command: CommandRequest, run: RunCommand, deps: CommandDeps): Serve {
  return (asked) => {
    if (!isWebSocket(asked.request)) {
      const protocol = negotiateSpdy(asked.request, commandProtocols);
      if (typeof protocol !== "string") return protocol;
      return commandOverSpdy({ socket: acceptSpdy(asked, protocol), protocol }, command, run, deps);
    }
    const subprotocol = negotiateWebSocket(asked.request, commandSubprotocols);
    if (typeof subprotocol !== "string") return subprotocol;
    return withWebSocket(asked, subprotocol, (ws) => commandOverWebSocket({ ws, subprotocol }, command, run, deps));
  };
}

/** Serves one client's connections to a pod in the client's protocol. */
export function serveForward(ports: readonly number[], connect: ConnectPort, deps: CommandDeps): Serve {
  return (asked) => {
    if (!isWebSocket(asked.request)) {
      const protocol = negotiateSpdy(asked.request, [forwardProtocol]);
      if (typeof protocol !== "string") return protocol;
      return forwardOverSpdy(acceptSpdy(asked, protocol), connect, deps);
    }
    const subprotocol = negotiateWebSocket(asked.request, forwardSubprotocols);
    if (typeof subprotocol !== "string") return subprotocol;
    return withWebSocket(asked, subprotocol, (ws) =>
      subprotocol === tunnelSubprotocol
        ? forwardOverSpdy(tunnel(ws), connect, deps)
        : forwardOverWebSocket({ ws, subprotocol }, ports, connect, deps),
    );
  };
}

/** Refusal of a request without an upgrade. */
export function refusePlain(request: IncomingMessage): Refusal {
  const refusal = negotiateSpdy(request, [...commandProtocols, forwardProtocol]);
  return typeof refusal === "string" ? { status: 400, text: "unable to upgrade: missing upgrade headers" } : refusal;
}

async function withWebSocket(
  asked: Asked,
  subprotocol: string,
  serve: (ws: WebSocket) => Promise<void>,
): Promise<void> {
  const ws = await acceptWebSocket(asked, subprotocol);
  if (ws) await serve(ws);
}
