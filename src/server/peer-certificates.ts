import type { Socket } from "node:net";
import type { TLSSocket } from "node:tls";
import { createBoundedMap } from "../lib/bounded-map.ts";
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

/** What a certificate says, whoever has signed it. */
interface Holder {
  readonly user: User | undefined;
  /** The end of its time, milliseconds since the epoch. */
  readonly until: number;
}

/** Certificates that are remembered: an API server shows the same one on each of its connections, and it opens one an exec. */
const rememberedHolders = 64;

/** Common name and organizations of verified client certificates as user and groups. TLS does the verifying, against the
 *  client CA alone; this remembers the verdict for as long as the certificate is valid.
 *  @param hasCA whether there is a client CA at all: without one no certificate counts.
 *  @see https://kubernetes.io/docs/reference/access-authn-authz/authentication/#x509-client-certificates */
export function createPeerCertificates(hasCA: () => boolean, clock: Clock): PeerCertificates {
  const accepted = new WeakMap<Socket, { readonly peer: Peer; readonly until: number; readonly generation: number }>();
  const holders = createBoundedMap<Holder>(rememberedHolders);
  let generation = 0;
  const holderOf = (socket: TLSSocket): Holder | undefined => {
    const certificate = socket.getPeerX509Certificate();
    if (!certificate) return undefined;
    const { fingerprint256 } = certificate;
    const known = holders.get(fingerprint256);
    if (known) return known;
    // Costly: it takes a certificate apart to the last number.
    const { subject } = socket.getPeerCertificate();
    const name = values(subject.CN).at(-1) ?? "";
    const user = name === "" ? undefined : { name, groups: values(subject.O) };
    const holder = { user, until: certificate.validToDate.getTime() };
    holders.set(fingerprint256, holder);
    return holder;
  };
  return {
    accept(socket) {
      const holder = holderOf(socket);
      const peer = hasCA() ? peerOf(socket, holder) : { is: "none" as const };
      accepted.set(socket, { peer, until: holder?.until ?? Infinity, generation });
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

function peerOf(socket: TLSSocket, holder: Holder | undefined): Peer {
  if (!holder) return { is: "none" };
  if (!socket.authorized) return { is: "refused" };
  return holder.user ? { is: "known", user: holder.user } : { is: "none" };
}

function values(attribute: string | string[] | undefined): string[] {
  return attribute === undefined ? [] : [attribute].flat();
}
