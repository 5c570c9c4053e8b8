import { protocolError } from "./frames.ts";

/** Decides about the streams that a client opens on one connection, before the server hears of them. */
export interface StreamGate {
  /** @param block the stream's header block; those of a connection build on each other: each passes here, in its order.
   *  @returns whether the server hears of the stream. One that is refused with a text is accepted for nothing but that text. Until it
   *  is decided nothing more is read from the client.
   *  @throws CodedError invalid_argument for a client that is to be cut off. */
  open(id: number, block: Buffer): Verdict | Promise<Verdict>;
  /** A side has done with a stream: the server in whatever way, the client by a reset. */
  ended(id: number, by: "client" | "server"): void;
  /** The connection is gone: to be called by who made the gate. */
  close(): void;
}

export type Verdict = { readonly is: "passed" } | { readonly is: "refused"; readonly text?: string };

/** Streams that a connection which carries a command may ever open: clients need five. */
const commandStreams = 32;

/** The gate of a command's connection: a client that goes on opening streams is cut off, for servers wait with each that they do
 *  not know. */
export function commandGate(): StreamGate {
  let opened = 0;
  return {
    open() {
      opened += 1;
      if (opened > commandStreams) throw protocolError(`more than ${commandStreams} streams on a command's connection`);
      return { is: "passed" };
    },
    ended: () => undefined,
    close: () => undefined,
  };
}
