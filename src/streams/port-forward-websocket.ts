import type { WebSocket } from "ws";
import type { Clock } from "../lib/clock.ts";
import type { ForwardPort } from "./port-forward.ts";
import { endOutput } from "./remote-command.ts";
import { type Channel, Channels } from "./websocket/channels.ts";

/** Properties of a port-forward's WebSocket subprotocol. */
const subprotocols = {
  "v4.channel.k8s.io": { base64: false },
  "v4.base64.channel.k8s.io": { base64: true },
  "": { base64: false },
} as const;
export type ForwardSubprotocol = keyof typeof subprotocols;

/** Subprotocol of a WebSocket that tunnels a SPDY connection. */
export const tunnelSubprotocol = "SPDY/3.1+portforward.k8s.io";

/** WebSocket subprotocols of port forwarding; "" for a client that requests none. */
export const forwardSubprotocols = [...(Object.keys(subprotocols) as ForwardSubprotocol[]), tunnelSubprotocol] as const;

/** Serves one connection to each of the ports on a WebSocket: data and errors of the n-th are channels 2n and 2n+1, and both begin with
 *  the port. Resolves when the connection is gone; never throws.
 *  @see https://github.com/kubernetes/cri-streaming (portforward) */
export async function serveForwardOverWebSocket(
  { ws, subprotocol }: { readonly ws: WebSocket; readonly subprotocol: ForwardSubprotocol },
  ports: readonly number[],
  forward: ForwardPort,
  clock: Clock,
): Promise<void> {
  const channels = new Channels({ ws, ...subprotocols[subprotocol], supportsClose: false, clock });
  const pairs = ports.map((port, index) => ({
    port,
    data: channels.open(2 * index),
    error: channels.open(2 * index + 1).resume(),
  }));
  for (const { port, data, error } of pairs) for (const channel of [data, error]) channel.write(portBytes(port));
  channels.start();
  const serve = async ({ port, data, error }: { port: number; data: Channel; error: Channel }) => {
    // The protocol has no message for the end of a connection: the pod's end ends both directions.
    const onRemoteEnd = () => data.receiveEnd();
    const onError = (text: string) => error.write(text);
    await forward({ port, data, gone: channels.gone, onError, onRemoteEnd }).catch(() => undefined);
    await endOutput(error).catch(() => undefined);
  };
  await Promise.all(pairs.map(serve));
  await channels.close();
}

function portBytes(port: number): Buffer {
  const bytes = Buffer.alloc(2);
  bytes.writeUInt16LE(port);
  return bytes;
}
