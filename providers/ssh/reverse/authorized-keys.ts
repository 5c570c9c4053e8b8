import ssh2, { type ParsedKey } from "ssh2";
import { readFile } from "node:fs/promises";
import { CodedError, codeOfErrno, messageOf } from "../../../src/lib/errors.ts";
import { errnoOf } from "../../local/errors.ts";

/** Public keys, by their base64 in SSH's wire format. */
export type PublicKeys = ReadonlyMap<string, ParsedKey>;

/** Reads the public keys of a file in the format of sshd's authorized_keys. Keys with options are refused.
 *  @throws CodedError, a sentence with the file, the line and the remedy.
 *  @see https://man.openbsd.org/sshd.8#AUTHORIZED_KEYS_FILE_FORMAT */
export async function readAuthorizedKeys(path: string): Promise<PublicKeys> {
  const text = await readFile(path, "utf8").catch((cause: unknown) => {
    throw new CodedError(
      codeOfErrno(errnoOf(cause)),
      `providerConfig.reverse.authorizedKeysFile cannot be read: ${messageOf(cause)}.`,
      { cause },
    );
  });
  return parseAuthorizedKeys(text, `providerConfig.reverse.authorizedKeysFile: ${path}`);
}

/** Parses public keys in the same format. @param where names their place. @throws CodedError, a sentence with the line. */
export function parseAuthorizedKeys(text: string, where: string): PublicKeys {
  const keys = new Map<string, ParsedKey>();
  for (const [index, line] of text.split("\n").entries()) {
    const entry = line.trim();
    if (entry === "" || entry.startsWith("#")) continue;
    const key = ssh2.utils.parseKey(entry);
    if (key instanceof Error || key.isPrivateKey())
      throw new CodedError(
        "invalid_argument",
        `${where}:${index + 1}: expected a bare public key (as in the .pub file), without options.`,
      );
    keys.set(key.getPublicSSH().toString("base64"), key);
  }
  return keys;
}
