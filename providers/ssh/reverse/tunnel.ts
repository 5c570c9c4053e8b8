import type { Duplex } from "node:stream";

/** The reverse tunnel of one node: streams to the machine's sshd over connections that the machine has opened to graftlet. */
export interface ReverseTunnel extends AsyncDisposable {
  /** Opens a connection to the machine's sshd. @throws LinkError, a sentence with the remedy. */
  open(signal: AbortSignal): Promise<Duplex>;
  /** Records whether a stream returned by `open` led to the machine's host key: a stolen login key could lead to another machine.
   *  @returns true if there is another reverse connection to try. */
  reportHostKey(opened: Duplex, isRight: boolean): boolean;
  /** Registers a listener for new reverse connections. @returns a function that removes it. */
  onConnected(listener: () => void): () => void;
}
