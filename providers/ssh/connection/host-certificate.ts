import ssh2 from "ssh2";
import { createPublicKey, verify } from "node:crypto";
import { messageOf } from "../../../src/lib/errors.ts";
import { type Certificate, formatDate, parseCertificate, validity } from "./certificate.ts";
import { fingerprintOf } from "./fingerprint.ts";
import { signatureAlgorithms } from "./key-algorithms.ts";
import { WireReader } from "./wire-reader.ts";

/** Trust settings that a host certificate is checked against. */
export interface CertificateTrust {
  /** The host's name or address as dialled, without a port. */
  readonly host: string;
  /** Current time, milliseconds since the epoch. */
  readonly now: number;
  /** True for a certificate authority trusted for this host. @param key in SSH's wire format, as below. */
  isAuthority(key: Buffer): boolean;
  isRevoked(key: Buffer): boolean;
  /** True for a host key that is trusted without a certificate. */
  isKnown(key: Buffer): boolean;
}

/** Checks a host's certificate as OpenSSH does, except that an empty list of principals is refused. The key exchange proves that
 *  the host has the certified key.
 *  @returns the reason for refusing it, a clause; undefined if it is valid.
 *  @see sshkey_cert_check_authority in OpenSSH's sshkey.c */
export function certificateRefusal(blob: Buffer, trust: CertificateTrust): string | undefined {
  const certificate = read(blob);
  if (typeof certificate === "string") return certificate;
  const revoked = [certificate.key, certificate.authority].find((key) => trust.isRevoked(key));
  if (revoked) return `its key or its authority ${fingerprintOf(revoked)} is revoked`;
  // A known key needs no certificate.
  if (trust.isKnown(certificate.key)) return undefined;
  return authorityRefusal(certificate, trust) ?? contentRefusal(certificate, trust);
}

function read(blob: Buffer): Certificate | string {
  try {
    return parseCertificate(blob);
  } catch (error) {
    return `it cannot be read: ${messageOf(error)}`;
  }
}

function authorityRefusal({ authority, signed, signature }: Certificate, trust: CertificateTrust): string | undefined {
  if (!trust.isAuthority(authority)) return `its authority ${fingerprintOf(authority)} is not trusted for this host`;
  if (!isSignatureOf(authority, signed, signature))
    return "its authority's signature is invalid, or uses an unsupported algorithm (RSA with SHA-1)";
  return undefined;
}

function contentRefusal(certificate: Certificate, { host, now }: CertificateTrust): string | undefined {
  if (certificate.type !== "host")
    return "it is a user certificate: have the authority sign the host's key with ssh-keygen -h";
  switch (validity(certificate, now)) {
    case "expired":
      return `it expired at ${formatDate(certificate.validBefore)}: renew it on the host`;
    case "early":
      return `it is not valid before ${formatDate(certificate.validAfter)}: check the clocks of this machine and of the authority`;
    case "valid":
  }
  const [option] = certificate.criticalOptions;
  if (option !== undefined) return `it has the unsupported critical option ${JSON.stringify(option)}`;
  const name = host.toLowerCase();
  const { principals } = certificate;
  if (!principals.includes(name))
    return `it ${principals.length > 0 ? `is for ${principals.join(", ")}` : "names no host"}: set host to one of its names, or have ${name} added`;
  return undefined;
}

/** Digest, and length of each ECDSA integer, by signature algorithm. Ed25519 includes its own digest. */
const digests: ReadonlyMap<string, readonly [digest: string | null, halfBytes: number]> = new Map([
  ["ssh-ed25519", [null, 0]],
  ["ecdsa-sha2-nistp256", ["sha256", 32]],
  ["ecdsa-sha2-nistp384", ["sha384", 48]],
  ["ecdsa-sha2-nistp521", ["sha512", 66]],
  ["rsa-sha2-512", ["sha512", 0]],
  ["rsa-sha2-256", ["sha256", 0]],
]);

/** True for a valid signature of the data by the key, with an algorithm allowed for the key's type. Never throws.
 *  @param key in SSH's wire format. @param signature in SSH's wire format.
 *  @see RFC 4253 §6.6, RFC 5656 §3.1.2, RFC 8332 §3, RFC 8709 §6 */
export function isSignatureOf(key: Buffer, data: Buffer, signature: Buffer): boolean {
  try {
    const keyType = new WireReader(key).text();
    const reader = new WireReader(signature);
    const algorithm = reader.text();
    const value = reader.string();
    const [digest, halfBytes] = digests.get(algorithm) ?? [null, 0];
    if (!reader.atEnd || signatureAlgorithms.get(keyType)?.includes(algorithm) !== true) return false;
    const parsed = ssh2.utils.parseKey(key);
    if (parsed instanceof Error) return false;
    const pem = { key: createPublicKey(parsed.getPublicPEM()), dsaEncoding: "ieee-p1363" } as const;
    return verify(digest, data, pem, halfBytes > 0 ? padIntegers(value, halfBytes) : value);
  } catch {
    // Malformed input is not a valid signature.
    return false;
  }
}

/** Pads ECDSA's two integers to their full length. @throws RangeError when one is longer. */
function padIntegers(value: Buffer, bytes: number): Buffer {
  const reader = new WireReader(value);
  const padded = [reader.string(), reader.string()].map((number) => {
    const digits = number.subarray(number.findIndex((byte) => byte !== 0));
    if (digits.length > bytes) throw new RangeError("an integer of the signature is too long");
    return Buffer.concat([Buffer.alloc(bytes - digits.length), digits]);
  });
  if (!reader.atEnd) throw new RangeError("data follows the signature");
  return Buffer.concat(padded);
}
