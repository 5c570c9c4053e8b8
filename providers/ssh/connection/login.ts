import ssh2 from "ssh2";
import { messageOf } from "../../../src/lib/errors.ts";
import type { SshLogin } from "../endpoint.ts";
import { type SshCredentials, readCredentials } from "./credentials.ts";
import { LinkError } from "./link-state.ts";
import { type UserCertificate, readUserCertificate } from "./user-certificate.ts";

/** Credentials for a login, with the certificate if there is one. */
export interface Login {
  readonly credentials: SshCredentials;
  /** Certificate of the private key; absent if none is configured. */
  readonly certificate?: UserCertificate;
}

/** Reads a login's files and checks them. @param now milliseconds since the epoch.
 *  @throws LinkError LoginRefused, or CertificateInvalid, a sentence with the remedy. */
export async function readLogin(login: SshLogin, now: number): Promise<Login> {
  const credentials = await readCredentials(login).catch(refused);
  if (!("privateKey" in credentials)) return { credentials };
  const key = ssh2.utils.parseKey(credentials.privateKey, credentials.passphrase);
  if (key instanceof Error)
    return refused(
      new Error(
        `providerConfig.privateKeyFile is not a usable private key (${key.message}): check it and passphraseFile.`,
      ),
    );
  if (login.kind !== "key" || login.certificateFile === undefined) return { credentials };
  try {
    const certificate = await readUserCertificate(login.certificateFile, key.getPublicSSH(), now);
    return { credentials, certificate };
  } catch (cause) {
    throw new LinkError("CertificateInvalid", "failed_precondition", messageOf(cause), { cause });
  }
}

function refused(cause: unknown): never {
  throw new LinkError("LoginRefused", "permission_denied", messageOf(cause), { cause });
}
