import { readFile, stat } from "node:fs/promises";
import { CodedError, codeOfErrno, messageOf } from "../../../src/lib/errors.ts";
import { errnoOf } from "../../local/errors.ts";
import type { SshLogin } from "../endpoint.ts";

/** Credentials for one connection. Never logged. */
export type SshCredentials =
  | { readonly privateKey: Buffer; readonly passphrase?: string }
  | { readonly agent: string }
  | { readonly password: string };

/** True if other users can read or replace a secret's file. A file of another user may be readable by the group, since that user
 *  has granted the access; an example is a Secret's files in a Pod, which root owns and the Pod's group can read. */
function isReadableByOthers({ mode, uid }: { readonly mode: number; readonly uid: number }): boolean {
  const givenByOwner = uid !== process.getuid?.();
  return (mode & (givenByOwner ? 0o037 : 0o077)) !== 0;
}

/** Reads the login's files on each call, so that rotated keys are used.
 *  @throws CodedError not_found, permission_denied (also for a file that others can read), a sentence with the remedy. */
export async function readCredentials(login: SshLogin): Promise<SshCredentials> {
  switch (login.kind) {
    case "agent":
      return { agent: login.agentSocket };
    case "password":
      return { password: await readSecretLine("passwordFile", login.passwordFile) };
    case "key": {
      const privateKey = await readSecretFile("privateKeyFile", login.privateKeyFile);
      if (login.passphraseFile === undefined) return { privateKey };
      return { privateKey, passphrase: await readSecretLine("passphraseFile", login.passphraseFile) };
    }
  }
}

/** Reads the first line of a secret file: editors append a newline that is not part of the secret.
 *  @throws CodedError not_found, permission_denied (also for a file that others can read), a sentence with the remedy. */
export async function readSecretLine(field: string, path: string): Promise<string> {
  return (await readSecretFile(field, path)).toString("utf8").replace(/\r?\n[\s\S]*$/, "");
}

/** Reads a secret file. @throws like `readSecretLine`. */
export async function readSecretFile(field: string, path: string): Promise<Buffer> {
  try {
    const file = await stat(path);
    if (isReadableByOthers(file))
      throw new CodedError(
        "permission_denied",
        `providerConfig.${field}: others can read ${path} (mode ${(file.mode & 0o777).toString(8)}): run chmod 600 ${path}.`,
      );
    return await readFile(path);
  } catch (error) {
    if (error instanceof CodedError) throw error;
    throw new CodedError(codeOfErrno(errnoOf(error)), `providerConfig.${field} cannot be read: ${messageOf(error)}.`, {
      cause: error,
    });
  }
}
