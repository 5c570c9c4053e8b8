import { readFile } from "node:fs/promises";
import { CodedError, codeOfErrno, messageOf } from "../../../src/lib/errors.ts";
import { errnoOf } from "../../local/errors.ts";
import { type Certificate, formatDate, parseCertificate, validity } from "./certificate.ts";
import { fingerprintOf } from "./fingerprint.ts";
import { certificateName } from "./key-algorithms.ts";

/** A user certificate, and its bytes in SSH's wire format. */
export interface UserCertificate extends Certificate {
  readonly blob: Buffer;
}

/** Reads the certificate of a key. To be called for each login, so that a renewed certificate is used.
 *  @param key the public key in SSH's wire format. @param now milliseconds since the epoch.
 *  @throws CodedError not_found, permission_denied, failed_precondition, a sentence with the remedy. */
export async function readUserCertificate(path: string, key: Buffer, now: number): Promise<UserCertificate> {
  const certificate = parseUserCertificate(await readCertificateFile(path), path);
  const refusal = userCertificateRefusal(certificate, key, now);
  if (refusal) throw unusable(path, refusal);
  return certificate;
}

async function readCertificateFile(path: string): Promise<string> {
  try {
    return await readFile(path, "utf8");
  } catch (cause) {
    const why = `providerConfig.certificateFile cannot be read: ${messageOf(cause)}.`;
    throw new CodedError(codeOfErrno(errnoOf(cause)), why, { cause });
  }
}

function parseUserCertificate(text: string, path: string): UserCertificate {
  const [type, base64 = ""] = text.trim().split(/\s+/);
  try {
    const blob = Buffer.from(base64, "base64");
    const certificate = parseCertificate(blob);
    if (type !== certificateName(certificate.keyType))
      throw new Error("the first word of the file is not the certificate's type");
    return { ...certificate, blob };
  } catch (cause) {
    const why = `is not an OpenSSH certificate (${messageOf(cause)}): set it to the KEY-cert.pub that ssh-keygen -s writes`;
    throw unusable(path, why, cause);
  }
}

function userCertificateRefusal(certificate: Certificate, key: Buffer, now: number): string | undefined {
  if (certificate.type !== "user")
    return "is a host certificate: ask its authority for a user certificate (ssh-keygen -s without -h)";
  if (!certificate.key.equals(key))
    return `certifies the key ${fingerprintOf(certificate.key)}, but privateKeyFile has ${fingerprintOf(key)}: set the certificate and key of the same pair`;
  switch (validity(certificate, now)) {
    case "expired":
      return `expired at ${formatDate(certificate.validBefore)}: put a new certificate into that file, which is read again at the next attempt`;
    case "early":
      return `is not valid before ${formatDate(certificate.validAfter)}: check the clocks of this machine and of the authority`;
    case "valid":
      return undefined;
  }
}

function unusable(path: string, why: string, cause?: unknown): CodedError {
  return new CodedError("failed_precondition", `providerConfig.certificateFile: ${path} ${why}.`, { cause });
}
