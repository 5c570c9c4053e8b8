import { readFile } from "node:fs/promises";
import ssh2, { type ParsedKey } from "ssh2";
import { CodedError, codeOfErrno, messageOf } from "../../../src/lib/errors.ts";
import { errnoOf } from "../../local/errors.ts";

/** Public keys, by their base64 in SSH's wire format. */
export type PublicKeys = ReadonlyMap<string, ParsedKey>;

/** Public keys of a file as sshd's authorized_keys. Options before a key are refused: none of them is served.
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
  const keys = new Map<string, ParsedKey>();
  for (const [index, line] of text.split("\n").entries()) {
    const entry = line.trim();
    if (entry === "" || entry.startsWith("#")) continue;
    const key = ssh2.utils.parseKey(entry);
    if (key instanceof Error || key.isPrivateKey())
      throw new CodedError(
        "invalid_argument",
        `providerConfig.reverse.authorizedKeysFile: line ${index + 1} of ${path} is no public key alone: write it as the machine's .pub file has it, without options.`,
      );
    keys.set(key.getPublicSSH().toString("base64"), key);
  }
  return keys;
}
