import { type Duplex, Readable, type Writable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { type ExitStatus, connectionLost, parseStatus } from "./exit-status.ts";
import type { CommandStreams, TerminalSize } from "../seams/runtime.ts";
import type { CommandRunner } from "./remote-command.ts";
import { readBoundedText } from "./read-text.ts";
import { SpdyClient } from "./spdy/client.ts";
import { addAbortListener } from "node:events";

/** Version of the remote command protocol that a relay requests: every CRI runtime supports it. */
export const relayProtocol = "v4.channel.k8s.io";

/** Maximum size of a status, bytes. */
const maxStatusBytes = 1 << 16;

/** Runs a command, or attaches to one, through a runtime's streaming server. The relay speaks SPDY in place of the client, as the kubelet
 *  does for WebSocket clients. The server's status becomes the command's. @param connect returns the connection, upgraded to SPDY and
 *  `relayProtocol`; called once. @throws (the command) unavailable when the connection ends before the server has sent a status: clients
 *  treat an end without a status as success. */
export function relayContainerCommand(connect: (signal: AbortSignal) => Promise<Duplex>): CommandRunner {
  return async (streams, signal) => {
    const status = await relay(streams, await connect(signal), signal);
    if (!status) throw connectionLost();
    return status;
  };
}

/** @returns the server's status of the command; undefined if it sends none. */
async function relay(
  { stdin, stdout, stderr, tty, sizes }: CommandStreams,
  socket: Duplex,
  signal: AbortSignal,
): Promise<ExitStatus | undefined> {
  const client = new SpdyClient(socket);
  const open = (type: string) => client.open(new Map([["streamtype", type]]));
  const close = () => client.close();
  using _ = addAbortListener(signal, close);
  try {
    const status = readBoundedText(open("error"), maxStatusBytes);
    if (stdin) stdin.pipe(open("stdin").resume());
    const output = (type: string, to: Writable | undefined) => to && pipeline(open(type), to, { end: false, signal });
    const outputs = [output("stdout", stdout), output("stderr", stderr)];
    if (tty) Readable.from(encodedSizes(sizes)).pipe(open("resize").resume());
    const [result] = await Promise.all([status, ...outputs]);
    return parseStatus(result);
  } finally {
    close();
  }
}

/** Encodes terminal sizes in the clients' format. */
async function* encodedSizes(sizes: AsyncIterable<TerminalSize>): AsyncGenerator<Buffer, void> {
  for await (const { width, height } of sizes) yield Buffer.from(JSON.stringify({ Width: width, Height: height }));
}
