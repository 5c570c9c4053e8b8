/** A machine that enrols: it has logged in to the listener for reverse tunnels with a one-time token. */
export interface EnrolmentRequest {
  readonly nodeName: string;
  readonly token: string;
  /** The public key with which it has logged in, as a line of sshd's authorized_keys. */
  readonly machineKey: string;
  /** Fingerprint of the host key that it has sent, as `SHA256:…`. */
  readonly hostKeyFingerprint: string;
  /** The machine's address. */
  readonly from: string;
}

/** Decides which machines may enrol. */
export interface EnrolmentHandler {
  /** True if the token is valid for the node now. Called before the login, for any peer. */
  isValid(nodeName: string, token: string): boolean;
  /** Records the machine, which uses up the token.
   *  @returns the lines that the machine appends to its authorized_keys; empty if there are none.
   *  @throws CodedError, one sentence for the machine's administrator. */
  enrol(request: EnrolmentRequest, signal: AbortSignal): Promise<string>;
}

/** The user name with which a machine enrols. */
export function enrolmentUser(nodeName: string, token: string): string {
  return `enrol.${nodeName}.${token}`;
}

/** Parses the user name with which a machine enrols; undefined for any other user name. Node names may contain dots, tokens do
 *  not. */
export function parseEnrolmentUser(user: string): { readonly nodeName: string; readonly token: string } | undefined {
  const [, nodeName, token] = /^enrol\.([a-z0-9.-]{1,63})\.([0-9a-f]{32})$/.exec(user) ?? [];
  return nodeName === undefined || token === undefined ? undefined : { nodeName, token };
}
