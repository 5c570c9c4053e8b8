import type { WebSocket } from "ws";
import { statusBytes } from "./exit-status.ts";
import {
  type CommandRequest,
  type CommandServerDeps,
  type CommandRunner,
  runForClient,
  endOutput,
} from "./remote-command.ts";
import { noSizes, terminalSizes } from "./terminal-sizes.ts";
import { Channels } from "./websocket/channels.ts";

/** Properties of a command's WebSocket subprotocol. */
const subprotocols = {
  "v5.channel.k8s.io": { base64: false, supportsClose: true, json: true },
  "v4.channel.k8s.io": { base64: false, supportsClose: false, json: true },
  "v4.base64.channel.k8s.io": { base64: true, supportsClose: false, json: true },
  "channel.k8s.io": { base64: false, supportsClose: false, json: false },
  "base64.channel.k8s.io": { base64: true, supportsClose: false, json: false },
  "": { base64: false, supportsClose: false, json: false },
} as const;
export type CommandSubprotocol = keyof typeof subprotocols;

/** WebSocket subprotocols of a command; "" for a client that requests none. @see https://github.com/kubernetes/cri-streaming */
export const commandSubprotocols = Object.keys(subprotocols) as readonly CommandSubprotocol[];

/** Serves a command on a WebSocket: stdin, stdout, stderr, status and terminal sizes are channels 0 to 4. Resolves when the connection is
 *  gone; never throws. */
export async function serveCommandOverWebSocket(
  { ws, subprotocol }: { readonly ws: WebSocket; readonly subprotocol: CommandSubprotocol },
  request: CommandRequest,
  run: CommandRunner,
  { signal: stopped, clock, log }: CommandServerDeps,
): Promise<void> {
  const { base64, supportsClose, json } = subprotocols[subprotocol];
  const channels = new Channels({ ws, base64, supportsClose, clock });
  const stdin = request.stdin ? channels.open(0) : undefined;
  const stdout = request.stdout ? channels.open(1).resume() : undefined;
  const stderr = request.stderr ? channels.open(2).resume() : undefined;
  const error = channels.open(3).resume();
  const sizes = request.tty ? terminalSizes(channels.open(4)) : noSizes();
  (stdout ?? stderr ?? error).greet();
  channels.start();
  const streams = {
    ...(stdin && { stdin }),
    ...(stdout && { stdout }),
    ...(stderr && { stderr }),
    tty: request.tty,
    sizes,
  };
  const sendStatus = async (status: Parameters<typeof statusBytes>[0]) => {
    const bytes = statusBytes(status, json);
    if (bytes.length > 0) error.write(bytes);
    await endOutput(error);
  };
  await runForClient({ streams, gone: channels.gone, stopped, sendStatus }, run, log);
  await channels.close();
}
