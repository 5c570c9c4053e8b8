import type { Socket } from "node:net";
import type { TLSSocket } from "node:tls";
import { createBoundedMap } from "../lib/bounded-map.ts";
import type { Clock } from "../lib/clock.ts";
import type { User } from "../api/access.ts";

/** User and groups of a connection's client certificate. */
export type Peer =
  | { readonly kind: "none" }
  | { readonly kind: "refused" }
  | { readonly kind: "known"; readonly user: User };

export type PeerCertificates = ReturnType<typeof createPeerCertificates>;

/** Contents of a certificate, regardless of its signer. */
interface CertificateSubject {
  readonly user: User | undefined;
  /** Expiry, milliseconds since the epoch. */
  readonly until: number;
}

/** Maximum number of cached certificates: an API server presents the same one on each of its connections, and opens a connection per
 *  exec. */
const maxCachedCertificates = 64;

/** Common name and organizations of verified client certificates as user and groups. TLS verifies them against the client CA only; this
 *  caches the result while the certificate is valid. @param hasCA true if there is a client CA: without one, no certificate is accepted.
 *  @param handshakeMs limit of a handshake: one that began before the CA changed is verified against the old one.
 *  @see https://kubernetes.io/docs/reference/access-authn-authz/authentication/#x509-client-certificates */
export function createPeerCertificates(hasCA: () => boolean, clock: Clock, handshakeMs: number) {
  const accepted = new WeakMap<Socket, { readonly peer: Peer; readonly until: number; readonly generation: number }>();
  const holders = createBoundedMap<CertificateSubject>(maxCachedCertificates);
  let generation = 0;
  let renewedAt = Number.NEGATIVE_INFINITY;
  const holderOf = (socket: TLSSocket): CertificateSubject | undefined => {
    const certificate = socket.getPeerX509Certificate();
    if (!certificate) return undefined;
    const { fingerprint256 } = certificate;
    const known = holders.get(fingerprint256);
    if (known) return known;
    // Expensive: it parses the whole certificate.
    const { subject } = socket.getPeerCertificate();
    const name = values(subject.CN).at(-1) ?? "";
    const user = name === "" ? undefined : { name, groups: values(subject.O) };
    const holder = { user, until: certificate.validToDate.getTime() };
    holders.set(fingerprint256, holder);
    return holder;
  };
  return {
    /** Records a new connection, whose certificate TLS has just verified against the current CA. */
    accept(socket: TLSSocket): void {
      const holder = holderOf(socket);
      const peer = hasCA() ? peerOf(socket, holder) : { kind: "none" as const };
      const isOlder = clock.monotonic() - renewedAt < handshakeMs;
      accepted.set(socket, {
        peer,
        until: holder?.until ?? Infinity,
        generation: isOlder ? generation - 1 : generation,
      });
    },
    identify(socket: Socket): Peer {
      const known = accepted.get(socket);
      if (!known) return { kind: "none" };
      return clock.now() < known.until ? known.peer : { kind: "refused" };
    },
    /** True if the connection was accepted under an older CA, or may have been: it should no longer be used. */
    isStale: (socket: Socket): boolean => accepted.get(socket)?.generation !== generation,
    /** Called when the CA has changed. */
    renew(): void {
      generation += 1;
      renewedAt = clock.monotonic();
    },
  };
}

function peerOf(socket: TLSSocket, holder: CertificateSubject | undefined): Peer {
  if (!holder) return { kind: "none" };
  if (!socket.authorized) return { kind: "refused" };
  return holder.user ? { kind: "known", user: holder.user } : { kind: "none" };
}

function values(attribute: string | string[] | undefined): string[] {
  return attribute === undefined ? [] : [attribute].flat();
}
