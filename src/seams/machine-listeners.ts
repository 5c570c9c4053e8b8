import type { EnrolmentHandler } from "./enrolment.ts";

/** Address of a listener for reverse tunnels, at all addresses of graftlet's machine. */
export interface ListenerAddress {
  readonly port: number;
  /** File of the listener's private host key. */
  readonly hostKeyFile: string;
}

/** Listeners to which machines connect: to enrol, and to open their reverse tunnels. */
export interface MachineListeners {
  /** Accepts enrolments at a listener until the result is disposed. Opens the listener unless a node has opened it already.
   *  @throws CodedError if it cannot listen on the address, or the host key is not usable. */
  open(listener: ListenerAddress, handler: EnrolmentHandler): Promise<AsyncDisposable>;
  /** Accepts the reverse tunnel of a machine while a listener is open, whether or not its node runs in this process. A node of this name
   *  that runs here uses the same connections. @param onChange called when the machine's connections have changed. */
  expect(listener: ListenerAddress, nodeName: string, onChange: () => void): ExpectedMachine;
  /** Returns the public half of a private key, as a line of authorized_keys. @throws CodedError for an unusable key. */
  publicKeyOf(privateKey: string, passphrase: string | undefined): string;
}

/** A machine whose reverse tunnel is accepted until it is disposed of. Connections that no running node uses are then closed. */
export interface ExpectedMachine extends AsyncDisposable {
  /** Replaces the machine's public keys. @param text in the format of sshd's authorized_keys. */
  setKeys(text: string): void;
  /** Returns the newest connection of the machine; undefined if there is none, or all have led to a wrong host key. */
  arrival(): Arrival | undefined;
}

/** A connection that a machine has opened. */
export interface Arrival {
  /** When it was accepted, monotonic milliseconds. */
  readonly at: number;
  /** True if the last host key seen over connections of this machine was wrong: its key for the tunnel may have been stolen. */
  readonly isDoubtful: boolean;
}
