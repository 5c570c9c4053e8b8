import { mkdir, readFile, rm } from "node:fs/promises";
import { join } from "node:path";
import { secretText } from "../api/secrets.ts";
import { writeFileAtomically } from "../lib/write-file-atomically.ts";
import type { Secret } from "../objects.ts";
import type { GraftedNode, SshLoginSpec } from "./grafted-node.ts";
import { RefusedObject } from "./refusal.ts";

/** Fields of the ssh provider that name files. */
export type LoginFiles = Readonly<Record<string, string>>;

/** The keys of a login Secret, with the fields for their files. */
const fieldOfKey: Readonly<Record<string, string>> = {
  "ssh-privatekey": "privateKeyFile",
  "ssh-passphrase": "passphraseFile",
  "ssh-certificate": "certificateFile",
  "ssh-password": "passwordFile",
  known_hosts: "knownHostsFile",
};

/** Maximum size of a login's file, bytes. */
const maxFileBytes = 64 * 1024;

/** The sshds that graftlet logs in to: the machine, and then its jump hosts in their order. */
export function loginsOf({ spec: { ssh } }: GraftedNode): readonly SshLoginSpec[] {
  return [ssh, ...(ssh.proxyJump ?? [])];
}

/** Names of the Secrets that an object's logins need. */
export function loginSecretNames(object: GraftedNode): readonly string[] {
  return loginsOf(object).flatMap(({ secretRef }) => secretRef?.name ?? []);
}

/** Writes the contents of a login's Secret to files that only graftlet can read. Files that have not changed are left alone: the
 *  provider reads them again at each connection.
 *  @param secret undefined if it does not exist. @param directory for these files alone.
 *  @returns the fields that name them.
 *  @throws RefusedObject, one sentence, if the Secret is missing or has no login. */
export async function writeLogin(
  { secretRef, hostKeyFingerprints, hostCertificateAuthorities }: SshLoginSpec,
  secret: Secret | undefined,
  { directory, at }: { readonly directory: string; readonly at: string },
): Promise<LoginFiles> {
  if (!secretRef) return {};
  const title = secretTitle(secretRef.name, at);
  if (!secret)
    throw new RefusedObject(
      "LoginSecretMissing",
      "not_found",
      `${title} does not exist in the object's namespace: create it, or use another`,
    );
  // A key takes precedence over a password: a login has only one of them.
  const hasKey = secret.data?.["ssh-privatekey"] !== undefined;
  const trustsOtherwise = hostKeyFingerprints !== undefined || hostCertificateAuthorities !== undefined;
  const used = Object.keys(fieldOfKey).filter(
    (key) =>
      secret.data?.[key] !== undefined &&
      !(hasKey && key === "ssh-password") &&
      !(trustsOtherwise && key === "known_hosts"),
  );
  if (!used.includes("ssh-privatekey") && !used.includes("ssh-password"))
    throw new RefusedObject(
      "LoginSecretUnusable",
      "failed_precondition",
      `${title} has neither ssh-privatekey nor ssh-password: add one of them`,
    );
  await mkdir(directory, { recursive: true, mode: 0o700 });
  const fields: Record<string, string> = {};
  for (const [key, field] of Object.entries(fieldOfKey)) {
    const path = join(directory, key);
    if (!used.includes(key)) {
      await rm(path, { force: true });
      continue;
    }
    await writeChanged(path, textOfKey(secret, key, title));
    fields[field] = path;
  }
  return fields;
}

/** Returns the public keys with which a machine opens its reverse tunnel: those of the specification, or the Secret's `authorized_keys`.
 *  Pure. @throws RefusedObject, one sentence, if there are none. */
export function authorizedKeysOf(
  { reverse, secretRef }: GraftedNode["spec"]["ssh"],
  secret: Secret | undefined,
): string {
  const title = secretRef ? secretTitle(secretRef.name, "spec.ssh") : "";
  const text = reverse?.authorizedKeys?.join("\n") ?? textOfKey(secret, "authorized_keys", title);
  if (text.trim() === "")
    throw new RefusedObject(
      "MachineKeyMissing",
      "failed_precondition",
      "spec.ssh.reverse needs the public key with which the machine connects: write it in reverse.authorizedKeys, or as authorized_keys in the Secret of spec.ssh.secretRef, or let the machine enrol (graftlet enrol)",
    );
  return `${text}\n`;
}

/** Writes these public keys to a file. @param directory of the machine's login files. @returns the file's path. */
export async function writeAuthorizedKeys(keys: string, directory: string): Promise<string> {
  const path = join(directory, "authorized_keys");
  await mkdir(directory, { recursive: true, mode: 0o700 });
  await writeChanged(path, keys);
  return path;
}

function secretTitle(name: string, at: string): string {
  return `${at}.secretRef names Secret ${JSON.stringify(name)}, which`;
}

/** Decodes an entry of a Secret; empty if there is none. @throws RefusedObject if it is too long. */
function textOfKey(secret: Secret | undefined, key: string, title: string): string {
  const text = secretText(secret, key);
  if (text.length <= maxFileBytes) return text;
  throw new RefusedObject(
    "LoginSecretUnusable",
    "invalid_argument",
    `${title} has more than 64 KiB in ${key}: store only the login there`,
  );
}

async function writeChanged(path: string, text: string): Promise<void> {
  if ((await currentText(path)) !== text) await writeFileAtomically(path, text, 0o600);
}

async function currentText(path: string): Promise<string | undefined> {
  return readFile(path, "utf8").catch(() => undefined);
}

/** Deletes a node's login files. */
export async function deleteLogins(directory: string): Promise<void> {
  await rm(directory, { recursive: true, force: true });
}
