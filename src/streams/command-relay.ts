import { type Duplex, Readable, type Writable } from "node:stream";
import { finished, pipeline } from "node:stream/promises";
import { type ExitStatus, connectionLost, toldStatus } from "./exit-status.ts";
import type { CommandStreams, RunCommand } from "./remote-command.ts";
import { SpdyClient } from "./spdy/client.ts";
import type { SpdyStream } from "./spdy/stream.ts";
import type { TerminalSize } from "./terminal-sizes.ts";

/** The version of the remote command protocol that a relay asks for: every CRI runtime knows it. */
export const relayProtocol = "v4.channel.k8s.io";

/** The longest status that is read, bytes. */
const longestStatus = 1 << 16;

/** Runs a command, or attaches to one, by the streaming server of a runtime: in place of the client it speaks SPDY with it, as
 *  the kubelet does for clients that speak WebSocket. The server's status is the command's.
 *  @param connect gives the connection, which has left HTTP for SPDY and `relayProtocol`; called once.
 *  @throws (the command) unavailable when the connection ends, or `stopped` aborts, before the server told a status. */
export function relayCommand(connect: (signal: AbortSignal) => Promise<Duplex>, stopped: AbortSignal): RunCommand {
  return async (streams, gone) => {
    const signal = AbortSignal.any([gone, stopped]);
    try {
      const told = await relay(streams, await connect(signal), signal);
      if (!told) throw connectionLost();
      return told;
    } catch (error) {
      throw stopped.aborted ? connectionLost() : error;
    }
  };
}

/** @returns what the server tells of the command; undefined when it never does. */
async function relay(
  { stdin, stdout, stderr, tty, sizes }: CommandStreams,
  socket: Duplex,
  signal: AbortSignal,
): Promise<ExitStatus | undefined> {
  const client = new SpdyClient(socket);
  const open = (type: string) => client.open(new Map([["streamtype", type]]));
  const close = () => client.close();
  signal.addEventListener("abort", close, { once: true });
  try {
    const status = statusOn(open("error"));
    if (stdin) stdin.pipe(open("stdin").resume());
    const output = (type: string, to: Writable | undefined) => to && pipeline(open(type), to, { end: false, signal });
    const outputs = [output("stdout", stdout), output("stderr", stderr)];
    if (tty) Readable.from(written(sizes)).pipe(open("resize").resume());
    const [told] = await Promise.all([status, ...outputs]);
    return told;
  } finally {
    signal.removeEventListener("abort", close);
    close();
  }
}

async function statusOn(errors: SpdyStream): Promise<ExitStatus | undefined> {
  const parts: Buffer[] = [];
  let length = 0;
  errors.on("data", (part: Buffer) => {
    length += part.length;
    if (length <= longestStatus) parts.push(part);
  });
  await finished(errors, { writable: false });
  return toldStatus(Buffer.concat(parts).toString());
}

/** Terminal sizes as clients write them. */
async function* written(sizes: AsyncIterable<TerminalSize>): AsyncGenerator<Buffer, void> {
  for await (const { width, height } of sizes) yield Buffer.from(JSON.stringify({ Width: width, Height: height }));
}
