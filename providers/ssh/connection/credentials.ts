import { readFile, stat } from "node:fs/promises";
import { CodedError, codeOfErrno, messageOf } from "../../../src/lib/errors.ts";
import { errnoOf } from "../../local/errors.ts";
import type { SshLogin } from "../config.ts";

/** What a connection logs in with. Never logged. */
export type Credentials =
  | { readonly privateKey: Buffer; readonly passphrase?: string }
  | { readonly agent: string }
  | { readonly password: string };

/** Whether somebody else could read or replace a secret. As ssh(1) has it the group may read a file of another user, with which
 *  that user gives it to us: so are the files of a Secret in a Pod (root's, read by the Pod's group). */
function isOpen({ mode, uid }: { readonly mode: number; readonly uid: number }): boolean {
  const givenByOwner = uid !== process.getuid?.();
  return (mode & (givenByOwner ? 0o037 : 0o077)) !== 0;
}

/** Reads the login's files, afresh at each call so that a rotated key is found.
 *  @throws CodedError not_found, permission_denied (a file that others can read included), a sentence with the remedy. */
export async function readCredentials(login: SshLogin): Promise<Credentials> {
  switch (login.by) {
    case "agent":
      return { agent: login.agentSocket };
    case "password":
      return { password: await readSecretLine("passwordFile", login.passwordFile) };
    case "key": {
      const privateKey = await readSecret("privateKeyFile", login.privateKeyFile);
      if (login.passphraseFile === undefined) return { privateKey };
      return { privateKey, passphrase: await readSecretLine("passphraseFile", login.passphraseFile) };
    }
  }
}

/** The first line of a file: editors end it with a newline that is no part of the secret. */
async function readSecretLine(field: string, path: string): Promise<string> {
  return (await readSecret(field, path)).toString("utf8").replace(/\r?\n[\s\S]*$/, "");
}

async function readSecret(field: string, path: string): Promise<Buffer> {
  try {
    const file = await stat(path);
    if (isOpen(file))
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
