import type { WebSocket } from "ws";
import type { CommandDeps } from "./command-spdy.ts";
import { statusBytes } from "./exit-status.ts";
import { type CommandRequest, type RunCommand, conduct, finish } from "./remote-command.ts";
import { noSizes, terminalSizes } from "./terminal-sizes.ts";
import { Channels } from "./websocket/channels.ts";

/** Properties of a command's WebSocket subprotocol. */
const dialects = {
  "v5.channel.k8s.io": { base64: false, closes: true, json: true },
  "v4.channel.k8s.io": { base64: false, closes: false, json: true },
  "v4.base64.channel.k8s.io": { base64: true, closes: false, json: true },
  "channel.k8s.io": { base64: false, closes: false, json: false },
  "base64.channel.k8s.io": { base64: true, closes: false, json: false },
  "": { base64: false, closes: false, json: false },
} as const;
export type CommandSubprotocol = keyof typeof dialects;

/** WebSocket subprotocols of a command; "" for a client that requests none. @see https://github.com/kubernetes/cri-streaming */
export const commandSubprotocols = Object.keys(dialects) as readonly CommandSubprotocol[];

/** Serves a command on a WebSocket: stdin, stdout, stderr, status and terminal sizes are channels 0 to 4. Resolves when the connection is
 *  gone; never throws. */
export async function commandOverWebSocket(
  { ws, subprotocol }: { readonly ws: WebSocket; readonly subprotocol: CommandSubprotocol },
  request: CommandRequest,
  run: RunCommand,
  { clock, log }: CommandDeps,
): Promise<void> {
  const { base64, closes, json } = dialects[subprotocol];
  const channels = new Channels({ ws, base64, closes, clock });
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
  const tell = async (status: Parameters<typeof statusBytes>[0]) => {
    const bytes = statusBytes(status, json);
    if (bytes.length > 0) error.write(bytes);
    await finish(error);
  };
  await conduct({ streams, gone: channels.gone, tell }, run, log);
  await channels.close();
}
