import { messageOf } from "../../../src/lib/errors.ts";
import { type Certificate, formatDate, parseCertificate, validity } from "./certificate.ts";
import { fingerprintOf } from "./fingerprint.ts";
import { isSignatureOf } from "./signature.ts";

/** What a host certificate is checked against. */
export interface CertificateTrust {
  /** The host's name or address as dialled, without a port. */
  readonly host: string;
  /** Milliseconds since the epoch. */
  readonly now: number;
  /** True for a certificate authority trusted for this host. @param key in SSH's wire format, as below. */
  isAuthority(key: Buffer): boolean;
  isRevoked(key: Buffer): boolean;
  /** True for a host key that is trusted without a certificate. */
  isKnown(key: Buffer): boolean;
}

/** Checks a host's certificate as OpenSSH does, except that an empty list of principals is refused. The key exchange proves that the host
 *  has the certified key.
 *  @returns why it is refused, a clause; undefined when it is valid. @see sshkey_cert_check_authority in OpenSSH's sshkey.c */
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
  if (!certificate.principals.includes(name))
    return `it is for ${certificate.principals.join(", ") || "no name at all"}: set host to one of its names, or have ${name} added`;
  return undefined;
}
