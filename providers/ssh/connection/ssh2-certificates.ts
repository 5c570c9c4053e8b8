import type { Client } from "ssh2";
import wire from "ssh2/lib/protocol/utils.js";
import { parseCertificate } from "./certificate.ts";
import { certificateName, plainName } from "./key-algorithms.ts";
import { LinkError } from "./link-state.ts";
import type { UserCertificate } from "./user-certificate.ts";
import { wireString } from "./wire-reader.ts";

/** Internals of ssh2 1.17.0. ssh2 does not support certificates; this file adds them to a client by patching these internals. A unit test
 *  pins the version, and a client with other internals is refused. All signature checks remain ssh2's own. */
interface Protocol {
  _offer: Offer;
  _kex: Exchange | undefined;
  readonly _authsQueue: string[];
  readonly _packetRW: { readonly write: PacketWriter };
  authPK: (user: string, key: unknown, algorithm: string | undefined, sign?: Sign) => void;
}

interface Lists {
  readonly kex: { readonly array: readonly string[] };
  readonly serverHostKey: { readonly array: readonly string[] };
  readonly cs: object;
  readonly sc: object;
}

/** The algorithms that this side offers in a key exchange. */
interface Offer {
  readonly lists: Lists;
}

/** One key exchange, the first or a later rekeying. */
interface Exchange {
  readonly sessionID: Buffer;
  readonly negotiated: { serverHostKey: string };
  /** The host's key, from its receipt until its signature is checked. */
  _hostKey: Buffer | undefined;
  getPublicKey(): Buffer;
}

interface PacketWriter {
  readonly allocStart: number;
  alloc(length: number): Buffer;
  finalize(packet: Buffer): Buffer;
}

type Sign = (data: Buffer, done: (signature: Buffer) => void) => void;

/** Makes a client offer host-certificate algorithms in addition to, and before, its own. The client then passes the certificate to its
 *  hostVerifier, which has to check it, and verifies the exchange with the certified key. To be called right after `connect`.
 *  @param algorithms such as `ssh-ed25519-cert-v01@openssh.com`. @throws LinkError when ssh2's internals differ. */
export function offerHostCertificates(client: Client, algorithms: readonly string[]): void {
  const protocol = protocolOf(client);
  protocol._offer = withHostKeys(protocol._offer, algorithms);
  let current = protocol._kex;
  Object.defineProperty(protocol, "_kex", {
    get: () => current,
    set(next: Exchange | undefined) {
      if (next) acceptCertificate(next);
      current = next;
    },
  });
}

function withHostKeys(offer: Offer, algorithms: readonly string[]): Offer {
  const { kex, serverHostKey, cs, sc } = offer.lists;
  const Rebuilt = offer.constructor as new (lists: object) => Offer;
  const arrays = (lists: object) => Object.fromEntries(Object.entries(lists).map(([name, { array }]) => [name, array]));
  return new Rebuilt({
    kex: kex.array,
    serverHostKey: [...algorithms, ...serverHostKey.array],
    cs: arrays(cs),
    sc: arrays(sc),
  });
}

/** Makes a key exchange accept a certificate as host key. ssh2 first compares the type of the received key with the algorithm,
 *  passes the key to the verifier and hashes it; then it calls getPublicKey for our public key, hashes that, and checks the
 *  signature with the host's key. Up to that call, `_hostKey` must be the certificate; afterwards, the certified key. In any
 *  other order the hash or the key would be wrong, and the signature check would fail. */
function acceptCertificate(exchange: Exchange): void {
  const algorithm = plainName(exchange.negotiated.serverHostKey);
  if (algorithm === undefined) return;
  exchange.negotiated.serverHostKey = certificateName(algorithm.startsWith("rsa-") ? "ssh-rsa" : algorithm);
  const getPublicKey = exchange.getPublicKey.bind(exchange);
  exchange.getPublicKey = () => {
    if (exchange._hostKey) {
      exchange._hostKey = parseCertificate(exchange._hostKey).key;
      exchange.negotiated.serverHostKey = algorithm;
    }
    return getPublicKey();
  };
}

/** Makes a client log in with a certificate and its private key. To be called right after `connect`. @throws LinkError when ssh2's internals
 *  differ. */
export function useCertificate(client: Client, { blob, keyType }: UserCertificate): void {
  const protocol = protocolOf(client);
  protocol.authPK = (user, _key, given, sign) => {
    const algorithm = given ?? keyType;
    if (algorithm === "ssh-rsa") throw onlySha1();
    const request = encodeAuthRequest(user, {
      algorithm: certificateName(algorithm),
      blob,
      signed: sign !== undefined,
    });
    if (!sign) return send(protocol, request);
    const { sessionID } = protocol._kex ?? {};
    if (!sessionID) throw new Error("there is no session to log in to");
    sign(Buffer.concat([wireString(sessionID), request]), (raw) => {
      const signature = wire.convertSignature(raw, keyType);
      if (signature === false) throw new Error("cannot encode the key's signature");
      // The signature is made with the plain key, so its algorithm has the plain name.
      send(
        protocol,
        Buffer.concat([request, wireString(Buffer.concat([wireString(algorithm), wireString(signature)]))]),
      );
    });
  };
}

function onlySha1(): LinkError {
  return new LinkError(
    "LoginRefused",
    "permission_denied",
    "the target's sshd accepts RSA keys only with SHA-1, which is broken: use a certified ed25519 key, or upgrade that sshd.",
  );
}

const userauthRequest = 50;

interface AuthRequest {
  readonly algorithm: string;
  readonly blob: Buffer;
  /** False for a query whether the key would be accepted. */
  readonly signed: boolean;
}

/** @see RFC 4252 §7 */
function encodeAuthRequest(user: string, { algorithm, blob, signed }: AuthRequest): Buffer {
  return Buffer.concat([
    Buffer.from([userauthRequest]),
    ...[user, "ssh-connection", "publickey"].map(wireString),
    Buffer.from([signed ? 1 : 0]),
    ...[algorithm, blob].map(wireString),
  ]);
}

function send(protocol: Protocol, payload: Buffer): void {
  const { write } = protocol._packetRW;
  const start = write.allocStart;
  const packet = write.alloc(payload.length);
  packet.set(payload, start);
  protocol._authsQueue.push("publickey");
  wire.sendPacket(protocol, write.finalize(packet));
}

function protocolOf(client: Client): Protocol {
  const { _protocol: protocol } = client as unknown as { readonly _protocol: Partial<Protocol> | undefined };
  const lists = protocol?._offer?.lists;
  const known =
    Array.isArray(lists?.kex?.array) &&
    Array.isArray(lists.serverHostKey?.array) &&
    protocol !== undefined &&
    "_kex" in protocol &&
    protocol._kex === undefined &&
    Array.isArray(protocol._authsQueue) &&
    typeof protocol._packetRW?.write?.alloc === "function" &&
    typeof protocol._packetRW.write.finalize === "function" &&
    typeof protocol.authPK === "function" &&
    typeof wire.sendPacket === "function" &&
    typeof wire.convertSignature === "function";
  if (!known)
    throw new LinkError(
      "CertificateInvalid",
      "failed_precondition",
      "this graftlet's version of ssh2 does not support certificates: build graftlet with the version that its package.json names.",
    );
  return protocol as Protocol;
}
