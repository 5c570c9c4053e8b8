import { CodedError, type ErrorCode } from "../../../src/lib/errors.ts";

/** Reason why a link is down, for the node's Ready condition. */
export type LinkReason =
  | "LinkDown"
  | "ConnectionRejected"
  | "HostKeyMismatch"
  | "HostKeyUnknown"
  | "LoginRefused"
  | "CertificateInvalid"
  | "NoSessions"
  | "LoginShellTimeout"
  | "NoPosixShell"
  | "LoginInChroot"
  | "NoSftp"
  | "ReverseTunnelDown"
  | "LimitExceeded";

/** Error of a link that is down: a reason, and a message that is a sentence with the remedy. */
export class LinkError extends CodedError {
  readonly reason: LinkReason;
  constructor(reason: LinkReason, code: ErrorCode, message: string, options?: ErrorOptions) {
    super(code, message, options);
    this.name = "LinkError";
    this.reason = reason;
  }
}

/** A link's public state; the link's internal `idle` appears as `down`. Times are milliseconds since the epoch. */
export type LinkState =
  | { readonly kind: "down"; readonly since: number; readonly why: LinkError; readonly nextTryAt: number }
  | { readonly kind: "connecting"; readonly since: number }
  | { readonly kind: "up"; readonly since: number; readonly connections: number }
  | { readonly kind: "closed" };

/** Initial and maximum delay between attempts, milliseconds, before jitter. Problems that need human action are retried
 *  slowly: frequent attempts would fill the target's log, and some targets ban the client. */
const delays: Readonly<Record<LinkReason, readonly [number, number]>> = {
  LinkDown: [500, 30_000],
  ConnectionRejected: [1_000, 30_000],
  HostKeyMismatch: [300_000, 600_000],
  HostKeyUnknown: [60_000, 600_000],
  LoginRefused: [30_000, 300_000],
  // The retry can be quick, because nothing is sent to the target in this case.
  CertificateInvalid: [1_000, 15_000],
  NoSessions: [5_000, 30_000],
  LoginShellTimeout: [2_000, 30_000],
  NoPosixShell: [5_000, 30_000],
  LoginInChroot: [5_000, 30_000],
  NoSftp: [5_000, 30_000],
  ReverseTunnelDown: [1_000, 30_000],
  LimitExceeded: [10_000, 300_000],
};

/** Returns the milliseconds until the next attempt, before jitter. Pure.
 *  @param failures number of consecutive failures for this reason, including this one. */
export function retryDelay(reason: LinkReason, failures: number): number {
  const [first, longest] = delays[reason];
  return Math.min(longest, first * 2 ** Math.min(20, failures - 1));
}
