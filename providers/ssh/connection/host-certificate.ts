import { messageOf } from "../../../src/lib/errors.ts";
import { type Certificate, dateOf, parseCertificate, validity } from "./certificate.ts";
import { fingerprintOf } from "./fingerprint.ts";
import { isSignatureOf } from "./signature.ts";

/** What is known before a host shows its certificate. */
export interface CertificateTrust {
  /** The host's name or address as dialled, without a port. */
  readonly host: string;
  /** Milliseconds since the epoch. */
  readonly now: number;
  /** Each takes a key in SSH's wire format. */
  isAuthority(key: Buffer): boolean;
  isRevoked(key: Buffer): boolean;
  /** A host key that is good without a certificate. */
  isKnown(key: Buffer): boolean;
}

/** Checks a host's certificate as OpenSSH does, but that a list of names may not be empty. That the host has the certified key
 *  is for the key exchange to prove.
 *  @returns why it is refused, a clause; undefined when it is good. @see sshkey_cert_check_authority in OpenSSH's sshkey.c */
export function certificateRefusal(blob: Buffer, trust: CertificateTrust): string | undefined {
  const certificate = read(blob);
  if (typeof certificate === "string") return certificate;
  const revoked = [certificate.key, certificate.authority].find((key) => trust.isRevoked(key));
  if (revoked) return `its key or its authority ${fingerprintOf(revoked)} is revoked`;
  // A key that is known needs no certificate.
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
  if (!trust.isAuthority(authority))
    return `its authority ${fingerprintOf(authority)} is none that is trusted for this host`;
  if (!isSignatureOf(authority, signed, signature))
    return "its authority's signature is wrong, or by an algorithm that is not taken (RSA with SHA-1)";
  return undefined;
}

function contentRefusal(certificate: Certificate, { host, now }: CertificateTrust): string | undefined {
  if (certificate.for !== "host") return "it is a user's: have the authority sign the host's key with ssh-keygen -h";
  switch (validity(certificate, now)) {
    case "expired":
      return `it expired at ${dateOf(certificate.validBefore)}: renew it on the host`;
    case "early":
      return `it is not valid before ${dateOf(certificate.validAfter)}: check this machine's clock and that of the authority`;
    case "valid":
  }
  const [option] = certificate.criticalOptions;
  if (option !== undefined) return `it has the critical option ${JSON.stringify(option)}, and a host's may have none`;
  const name = host.toLowerCase();
  if (!certificate.principals.includes(name))
    return `it is for ${certificate.principals.join(", ") || "no name at all"}: dial the host by a name in it, or have ${name} added`;
  return undefined;
}
