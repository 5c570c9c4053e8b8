import type { IncomingMessage } from "node:http";
import type { WebSocket } from "ws";
import type { ClockAndLog } from "../lib/log.ts";
import { serveCommandOverSpdy, commandProtocols } from "./command-spdy.ts";
import { serveCommandOverWebSocket, commandSubprotocols } from "./command-websocket.ts";
import { serveForwardOverSpdy, forwardProtocol } from "./port-forward-spdy.ts";
import { serveForwardOverWebSocket, forwardSubprotocols, tunnelSubprotocol } from "./port-forward-websocket.ts";
import type { ConnectPort } from "./port-forward.ts";
import type { CommandRequest, RunCommand } from "./remote-command.ts";
import {
  type UpgradeRequest,
  type Refusal,
  acceptSpdy,
  acceptWebSocket,
  isWebSocket,
  negotiateSpdy,
  negotiateWebSocket,
} from "./upgrade.ts";
import { tunnelStream } from "./websocket/tunnel.ts";

/** Serves an upgrade request until the client is gone, or refuses it. */
export type ServeUpgrade = (asked: UpgradeRequest) => Promise<void> | Refusal;

/** Serves one command in the client's protocol. */
export function serveCommand(command: CommandRequest, run: RunCommand, deps: ClockAndLog): ServeUpgrade {
  return (upgrade) => {
    if (!isWebSocket(upgrade.request)) {
      const protocol = negotiateSpdy(upgrade.request, commandProtocols);
      if (typeof protocol !== "string") return protocol;
      return serveCommandOverSpdy({ socket: acceptSpdy(upgrade, protocol), protocol }, command, run, deps);
    }
    const subprotocol = negotiateWebSocket(upgrade.request, commandSubprotocols);
    if (typeof subprotocol !== "string") return subprotocol;
    return withWebSocket(upgrade, subprotocol, (ws) =>
      serveCommandOverWebSocket({ ws, subprotocol }, command, run, deps),
    );
  };
}

/** Serves one client's connections to a pod in the client's protocol. */
export function serveForward(ports: readonly number[], connect: ConnectPort, deps: ClockAndLog): ServeUpgrade {
  return (upgrade) => {
    if (!isWebSocket(upgrade.request)) {
      const protocol = negotiateSpdy(upgrade.request, [forwardProtocol]);
      if (typeof protocol !== "string") return protocol;
      return serveForwardOverSpdy(acceptSpdy(upgrade, protocol), connect, deps);
    }
    const subprotocol = negotiateWebSocket(upgrade.request, forwardSubprotocols);
    if (typeof subprotocol !== "string") return subprotocol;
    return withWebSocket(upgrade, subprotocol, (ws) =>
      subprotocol === tunnelSubprotocol
        ? serveForwardOverSpdy(tunnelStream(ws), connect, deps)
        : serveForwardOverWebSocket({ ws, subprotocol }, ports, connect, deps),
    );
  };
}

export function refuseWithoutUpgrade(request: IncomingMessage): Refusal {
  const refusal = negotiateSpdy(request, [...commandProtocols, forwardProtocol]);
  return typeof refusal === "string" ? { status: 400, text: "unable to upgrade: missing upgrade headers" } : refusal;
}

async function withWebSocket(
  upgrade: UpgradeRequest,
  subprotocol: string,
  serve: (ws: WebSocket) => Promise<void>,
): Promise<void> {
  const ws = await acceptWebSocket(upgrade, subprotocol);
  if (ws) await serve(ws);
}
