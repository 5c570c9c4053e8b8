import { isAbsolute } from "node:path";
import { type ConfigFields, invalidField } from "../config-fields.ts";

/** Configured credentials of a login. The files are on graftlet's own machine and are read on each connect. */
export type SshLogin =
  | {
      readonly kind: "key";
      readonly privateKeyFile: string;
      readonly passphraseFile?: string;
      readonly certificateFile?: string;
    }
  | { readonly kind: "agent"; readonly agentSocket: string }
  | { readonly kind: "password"; readonly passwordFile: string };

/** How the host key is verified. */
export type HostKeyTrust =
  | { readonly kind: "knownHosts"; readonly file: string }
  /** Fingerprints as `ssh-keygen -l` prints them (`SHA256:…`): of host keys, and of authorities whose host certificates are trusted. */
  | { readonly kind: "fingerprints"; readonly fingerprints: readonly string[]; readonly authorities: readonly string[] }
  /** The first key is written to the file, and only that key is accepted from then on. */
  | { readonly kind: "firstUse"; readonly file: string };

/** The address of an sshd, and how graftlet logs in to it. */
export interface SshEndpoint {
  readonly host: string;
  readonly port: number;
  readonly user: string;
  readonly login: SshLogin;
  readonly trust: HostKeyTrust;
}

/** Configuration fields of an SSH endpoint. */
export const endpointFields = [
  "host",
  "port",
  "user",
  "privateKeyFile",
  "passphraseFile",
  "certificateFile",
  "agentSocket",
  "passwordFile",
  "knownHostsFile",
  "hostKeyFingerprints",
  "hostCertificateAuthorities",
  "hostKey",
];

/** Reads an SSH endpoint's fields. @param at path of the fields, for messages.
 *  @throws CodedError invalid_argument, a sentence with the field and the remedy. */
export function readEndpoint(given: ConfigFields, at: string): SshEndpoint {
  return {
    host: readHostName(given.host, at),
    port: readPort(`${at}.port`, given.port ?? 22),
    user: readUserName(given.user, at),
    login: readLoginFields(given, at),
    trust: readTrust(given, at),
  };
}

function readHostName(value: unknown, at: string): string {
  if (typeof value !== "string" || !/^[\w.:%-]+$/.test(value))
    throw invalidField(
      `${at}.host is ${JSON.stringify(value)}, not a host name or address: write host: machine.example.`,
    );
  return value;
}

function readUserName(value: unknown, at: string): string {
  if (typeof value !== "string" || value === "" || /[\0\n]/.test(value))
    throw invalidField(`${at}.user is ${JSON.stringify(value)}, not a user name: write user: root.`);
  return value;
}

/** Validates a port. @param field full name of the field, for messages. */
export function readPort(field: string, value: unknown): number {
  if (typeof value !== "number" || !Number.isInteger(value) || value < 1 || value > 65_535)
    throw invalidField(`${field} is ${JSON.stringify(value)}, not a port: write a number from 1 to 65535.`);
  return value;
}

/** Validates an absolute path. @param field full name of the field, for messages. */
export function readPath(field: string, value: unknown): string {
  if (typeof value !== "string" || !isAbsolute(value) || value.includes("\0"))
    throw invalidField(
      `${field} is ${JSON.stringify(value)}, not an absolute path: write it from the root, such as /etc/graftlet/key.`,
    );
  return value;
}

function readLoginFields(given: ConfigFields, at: string): SshLogin {
  const methods = ["privateKeyFile", "agentSocket", "passwordFile"].filter((name) => given[name] !== undefined);
  if (methods.length !== 1)
    throw invalidField(
      methods.length === 0
        ? `${at} has no credentials: add one of privateKeyFile, agentSocket, passwordFile.`
        : `${at} has both ${methods.join(" and ")}: keep one of them.`,
    );
  if (given.passphraseFile !== undefined && given.privateKeyFile === undefined)
    throw invalidField(`${at}.passphraseFile has no key to decrypt: add privateKeyFile, or remove it.`);
  if (given.certificateFile !== undefined && given.privateKeyFile === undefined)
    throw invalidField(
      `${at}.certificateFile has no key to certify: add the privateKeyFile that it belongs to, or remove it.`,
    );
  if (given.agentSocket !== undefined)
    return { kind: "agent", agentSocket: readPath(`${at}.agentSocket`, given.agentSocket) };
  if (given.passwordFile !== undefined)
    return { kind: "password", passwordFile: readPath(`${at}.passwordFile`, given.passwordFile) };
  return {
    kind: "key",
    privateKeyFile: readPath(`${at}.privateKeyFile`, given.privateKeyFile),
    ...(given.passphraseFile !== undefined && {
      passphraseFile: readPath(`${at}.passphraseFile`, given.passphraseFile),
    }),
    ...(given.certificateFile !== undefined && {
      certificateFile: readPath(`${at}.certificateFile`, given.certificateFile),
    }),
  };
}

/** Fields with fingerprints, which replace knownHostsFile. */
const fingerprintFields = ["hostKeyFingerprints", "hostCertificateAuthorities"] as const;

const fingerprintHints = {
  hostKeyFingerprints: "`ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub` prints it on the target",
  hostCertificateAuthorities: "`ssh-keygen -lf` prints it for the authority's public key",
};

function readTrust(given: ConfigFields, at: string): HostKeyTrust {
  const file = given.knownHostsFile === undefined ? undefined : readPath(`${at}.knownHostsFile`, given.knownHostsFile);
  const instead = fingerprintFields.find((field) => given[field] !== undefined);
  if (given.hostKey !== undefined) return readFirstUse(given, file, at);
  if (file !== undefined && instead === "hostCertificateAuthorities")
    throw invalidField(
      `${at} has both knownHostsFile and hostCertificateAuthorities: write the authority into that file, as an @cert-authority line, or keep one of them.`,
    );
  if (file !== undefined && instead !== undefined)
    throw invalidField(`${at} has both knownHostsFile and hostKeyFingerprints: keep one of them.`);
  if (file !== undefined) return { kind: "knownHosts", file };
  if (instead !== undefined) {
    const of = (field: (typeof fingerprintFields)[number]) => readFingerprints(given[field], field, at);
    return {
      kind: "fingerprints",
      fingerprints: of("hostKeyFingerprints"),
      authorities: of("hostCertificateAuthorities"),
    };
  }
  throw invalidField(
    `${at} does not say how to verify the host key: add knownHostsFile, hostKeyFingerprints, hostCertificateAuthorities, or hostKey: trustOnFirstUse.`,
  );
}

function readFirstUse(given: ConfigFields, file: string | undefined, at: string): HostKeyTrust {
  if (given.hostKey !== "trustOnFirstUse")
    throw invalidField(
      `${at}.hostKey is ${JSON.stringify(given.hostKey)}: write trustOnFirstUse, or remove it and add knownHostsFile.`,
    );
  const other = fingerprintFields.find((field) => given[field] !== undefined);
  if (other !== undefined) throw invalidField(`${at} has both hostKey and ${other}: keep one of them.`);
  if (file === undefined)
    throw invalidField(
      `${at}.hostKey: trustOnFirstUse has no file to store the first key in: add knownHostsFile, a file that graftlet can write.`,
    );
  return { kind: "firstUse", file };
}

function readFingerprints(value: unknown, field: (typeof fingerprintFields)[number], at: string): readonly string[] {
  if (value === undefined) return [];
  const list: readonly unknown[] = Array.isArray(value) ? value : [];
  const texts = list.filter((item) => typeof item === "string" && /^SHA256:[A-Za-z0-9+/]{43}=?$/.test(item));
  if (list.length === 0 || texts.length !== list.length)
    throw invalidField(
      `${at}.${field} is ${JSON.stringify(value)}, not a list of fingerprints: write SHA256:… as ${fingerprintHints[field]}.`,
    );
  return texts.map((text) => String(text).replace(/=$/, ""));
}
