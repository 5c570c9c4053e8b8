import { protocolError } from "./frames.ts";

/** Decides about the streams that a client opens on one connection, before the server sees them. */
export interface StreamGate {
  /** @param block the stream's header block; blocks of a connection share their compression state, so all must pass here in order. @returns
   *  whether to forward the stream to the server. A stream refused with a text is accepted only to deliver that text. Until the decision,
   *  the client is not read. @throws CodedError invalid_argument to disconnect the client. */
  open(id: number, block: Buffer): StreamDecision | Promise<StreamDecision>;
  /** A side has finished a stream: the server in any way, the client by a reset. */
  ended(id: number, by: "client" | "server"): void;
  /** The connection is gone: called by the gate's creator. */
  close(): void;
}

export type StreamDecision = { readonly kind: "passed" } | { readonly kind: "refused"; readonly text?: string };

/** Maximum number of streams that a command's connection may ever open: clients need five. */
const maxCommandStreams = 32;

/** Gate of a command's connection: disconnects a client that keeps opening streams, because servers wait on each unknown stream. */
export function commandGate(): StreamGate {
  let opened = 0;
  return {
    open() {
      opened += 1;
      if (opened > maxCommandStreams)
        throw protocolError(`more than ${maxCommandStreams} streams on a command's connection`);
      return { kind: "passed" };
    },
    ended: () => undefined,
    close: () => undefined,
  };
}
