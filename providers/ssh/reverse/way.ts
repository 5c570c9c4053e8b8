import type { Duplex } from "node:stream";

/** The way to a machine that dials in. */
export interface ReverseWay extends AsyncDisposable {
  /** Opens a connection to the machine's sshd. @throws LinkError, a sentence with the remedy. */
  open(signal: AbortSignal): Promise<Duplex>;
  /** Reports whether what `open` returned led to the machine's host key: a stolen key may offer another machine.
   *  @returns true if there is another connection to try. */
  judge(opened: Duplex, isRight: boolean): boolean;
  /** Calls back when the machine has dialled in. @returns what stops that. */
  onArrival(listener: () => void): () => void;
}
