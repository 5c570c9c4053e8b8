import type { Socket } from "node:net";
import type { TLSSocket } from "node:tls";
import type { Clock } from "../lib/clock.ts";
import type { User } from "./ports.ts";

/** What a connection's client certificate says. */
export type Peer = { readonly is: "none" } | { readonly is: "refused" } | { readonly is: "known"; readonly user: User };

export interface PeerCertificates {
  /** Notes a new connection, whose certificate TLS has just verified against the CA in force. */
  accept(socket: TLSSocket): void;
  identify(socket: Socket): Peer;
  /** The connection was accepted under an older CA: it should be used no more. */
  isStale(socket: Socket): boolean;
  /** The CA has changed. */
  renew(): void;
}

/** Common name and organizations of verified client certificates as user and groups. TLS does the verifying, against the
 *  client CA alone; this remembers the verdict for as long as the certificate is valid.
 *  @param hasCA whether there is a client CA at all: without one no certificate counts.
 *  @see https://kubernetes.io/docs/reference/access-authn-authz/authentication/#x509-client-certificates */
export function createPeerCertificates(hasCA: () => boolean, clock: Clock): PeerCertificates {
  const accepted = new WeakMap<Socket, { readonly peer: Peer; readonly until: number; readonly generation: number }>();
  let generation = 0;
  return {
    accept(socket) {
      const certificate = socket.getPeerX509Certificate();
      const until = certificate ? certificate.validToDate.getTime() : Infinity;
      accepted.set(socket, { peer: hasCA() ? peerOf(socket) : { is: "none" }, until, generation });
    },
    identify(socket) {
      const known = accepted.get(socket);
      if (!known) return { is: "none" };
      return clock.now() < known.until ? known.peer : { is: "refused" };
    },
    isStale: (socket) => accepted.get(socket)?.generation !== generation,
    renew: () => void generation++,
  };
}

function peerOf(socket: TLSSocket): Peer {
  const { subject } = socket.getPeerCertificate() ?? {};
  if (!subject) return { is: "none" };
  if (!socket.authorized) return { is: "refused" };
  const name = values(subject.CN).at(-1) ?? "";
  return name === "" ? { is: "none" } : { is: "known", user: { name, groups: values(subject.O) } };
}

function values(attribute: string | string[] | undefined): string[] {
  return attribute === undefined ? [] : [attribute].flat();
}
