import type { Duplex } from "node:stream";

/** The way to a machine that dials in. */
export interface ReverseWay extends AsyncDisposable {
  /** Opens a connection to the machine's sshd. @throws LinkError, a sentence with the remedy. */
  open(signal: AbortSignal): Promise<Duplex>;
  /** Calls back when the machine has dialled in. @returns what stops that. */
  onArrival(listener: () => void): () => void;
}
