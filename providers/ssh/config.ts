import { isAbsolute } from "node:path";
import { type ConfigFields, fieldsOf, invalidField, socketPath } from "../config-fields.ts";

/** Credentials of the login. Files are on graftlet's own machine and are read on each connect. */
export type SshLogin =
  | { readonly by: "key"; readonly privateKeyFile: string; readonly passphraseFile?: string }
  | { readonly by: "agent"; readonly agentSocket: string }
  | { readonly by: "password"; readonly passwordFile: string };

/** Verification of the target's host key. */
export type HostKeyTrust =
  | { readonly by: "knownHosts"; readonly file: string }
  /** `SHA256:…`, as `ssh-keygen -l` prints them. */
  | { readonly by: "fingerprints"; readonly fingerprints: readonly string[] }
  /** The first key seen is written to the file, and only that key is accepted from then on. */
  | { readonly by: "firstUse"; readonly file: string };

export interface SshConfig {
  readonly host: string;
  readonly port: number;
  readonly user: string;
  readonly login: SshLogin;
  readonly trust: HostKeyTrust;
  /** `auto`, or the absolute path of the runtime's socket on the target. */
  readonly runtime: "auto" | { readonly socket: string };
  /** The kubelet's root directory on the target; the node's configured one when absent. */
  readonly rootDir?: string;
  readonly sudo: "auto" | "never";
  readonly network: "isolated" | "tunneled" | "routed";
  /** Address of the API server for pods, in place of the Service's. */
  readonly kubernetesService?: { readonly host: string; readonly port: number };
  /** Fields of the runtime's provider, which reads them itself. */
  readonly cri: unknown;
  readonly docker: unknown;
}

const fields = [
  "host",
  "port",
  "user",
  "privateKeyFile",
  "passphraseFile",
  "agentSocket",
  "passwordFile",
  "knownHostsFile",
  "hostKeyFingerprints",
  "hostKey",
  "runtime",
  "rootDir",
  "sudo",
  "network",
  "kubernetesService",
  "cri",
  "docker",
];

/** Reads the ssh provider's `providerConfig`; opens no file.
 *  @throws CodedError invalid_argument, a sentence with the field and the remedy. */
export function readSshConfig(config: unknown): SshConfig {
  const given = fieldsOf(config, {
    provider: "ssh",
    known: fields,
    write: "write at least host, user, privateKeyFile and knownHostsFile",
  });
  const rootDir = given.rootDir === undefined ? undefined : pathOf("rootDir", given.rootDir);
  const service = given.kubernetesService === undefined ? undefined : serviceOf(given.kubernetesService);
  return {
    host: hostOf(given.host),
    port: portOf("port", given.port ?? 22),
    user: userOf(given.user),
    login: loginOf(given),
    trust: trustOf(given),
    runtime: runtimeOf(given.runtime ?? "auto"),
    sudo: oneOf("sudo", given.sudo ?? "auto", ["auto", "never"]),
    network: oneOf("network", given.network ?? "isolated", ["isolated", "tunneled", "routed"]),
    cri: given.cri,
    docker: given.docker,
    ...(rootDir !== undefined && { rootDir }),
    ...(service !== undefined && { kubernetesService: service }),
  };
}

function hostOf(value: unknown): string {
  if (typeof value !== "string" || !/^[\w.:%-]+$/.test(value))
    throw invalidField(
      `providerConfig.host is ${JSON.stringify(value)}, not a machine's name or address: write host: machine.example.`,
    );
  return value;
}

function userOf(value: unknown): string {
  if (typeof value !== "string" || value === "" || /[\0\n]/.test(value))
    throw invalidField(
      `providerConfig.user is ${JSON.stringify(value)}, not the name of a user on the target: write user: root.`,
    );
  return value;
}

function portOf(field: string, value: unknown): number {
  if (typeof value !== "number" || !Number.isInteger(value) || value < 1 || value > 65_535)
    throw invalidField(
      `providerConfig.${field} is ${JSON.stringify(value)}, not a port: write a number from 1 to 65535.`,
    );
  return value;
}

function pathOf(field: string, value: unknown): string {
  if (typeof value !== "string" || !isAbsolute(value) || value.includes("\0"))
    throw invalidField(
      `providerConfig.${field} is ${JSON.stringify(value)}, not an absolute path: write it from the root, such as /etc/graftlet/key.`,
    );
  return value;
}

function loginOf(given: ConfigFields): SshLogin {
  const ways = ["privateKeyFile", "agentSocket", "passwordFile"].filter((name) => given[name] !== undefined);
  if (ways.length !== 1)
    throw invalidField(
      ways.length === 0
        ? "providerConfig names no way to log in: add one of privateKeyFile, agentSocket, passwordFile."
        : `providerConfig has both ${ways.join(" and ")}: keep one of them.`,
    );
  if (given.passphraseFile !== undefined && given.privateKeyFile === undefined)
    throw invalidField("providerConfig.passphraseFile opens no key: add privateKeyFile, or remove it.");
  if (given.agentSocket !== undefined) return { by: "agent", agentSocket: pathOf("agentSocket", given.agentSocket) };
  if (given.passwordFile !== undefined)
    return { by: "password", passwordFile: pathOf("passwordFile", given.passwordFile) };
  return {
    by: "key",
    privateKeyFile: pathOf("privateKeyFile", given.privateKeyFile),
    ...(given.passphraseFile !== undefined && { passphraseFile: pathOf("passphraseFile", given.passphraseFile) }),
  };
}

function trustOf(given: ConfigFields): HostKeyTrust {
  const file = given.knownHostsFile === undefined ? undefined : pathOf("knownHostsFile", given.knownHostsFile);
  if (given.hostKey !== undefined) return firstUseOf(given, file);
  if (file !== undefined && given.hostKeyFingerprints !== undefined)
    throw invalidField("providerConfig has both knownHostsFile and hostKeyFingerprints: keep one of them.");
  if (file !== undefined) return { by: "knownHosts", file };
  if (given.hostKeyFingerprints !== undefined)
    return { by: "fingerprints", fingerprints: fingerprintsOf(given.hostKeyFingerprints) };
  throw invalidField(
    "providerConfig does not say how to know the target: add knownHostsFile, hostKeyFingerprints, or hostKey: trustOnFirstUse.",
  );
}

function firstUseOf(given: ConfigFields, file: string | undefined): HostKeyTrust {
  if (given.hostKey !== "trustOnFirstUse")
    throw invalidField(
      `providerConfig.hostKey is ${JSON.stringify(given.hostKey)}: write trustOnFirstUse, or remove it and add knownHostsFile.`,
    );
  if (given.hostKeyFingerprints !== undefined)
    throw invalidField("providerConfig has both hostKey and hostKeyFingerprints: keep one of them.");
  if (file === undefined)
    throw invalidField(
      "providerConfig.hostKey: trustOnFirstUse has no place to keep the first key in: add knownHostsFile, a file that graftlet may write.",
    );
  return { by: "firstUse", file };
}

function fingerprintsOf(value: unknown): readonly string[] {
  const list: readonly unknown[] = Array.isArray(value) ? value : [];
  const texts = list.filter((item) => typeof item === "string" && /^SHA256:[A-Za-z0-9+/]{43}=?$/.test(item));
  if (list.length === 0 || texts.length !== list.length)
    throw invalidField(
      `providerConfig.hostKeyFingerprints is ${JSON.stringify(value)}, not a list of fingerprints: write SHA256:… as \`ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub\` prints it on the target.`,
    );
  return texts.map((text) => String(text).replace(/=$/, ""));
}

function runtimeOf(value: unknown): SshConfig["runtime"] {
  if (value === "auto") return "auto";
  const path = String(value).startsWith("unix:") ? socketPath(value) : undefined;
  if (path === undefined)
    throw invalidField(
      `providerConfig.runtime is ${JSON.stringify(value)}: write auto, or a socket of the target as unix:///run/containerd/containerd.sock.`,
    );
  return { socket: path };
}

function serviceOf(value: unknown): { readonly host: string; readonly port: number } {
  const [, host, port] = (typeof value === "string" ? /^\[?([\w.:-]+?)\]?:(\d{1,5})$/.exec(value) : null) ?? [];
  if (host === undefined)
    throw invalidField(
      `providerConfig.kubernetesService is ${JSON.stringify(value)}, not an address of the API server as pods on the target reach it: write host:port.`,
    );
  return { host, port: portOf("kubernetesService", Number(port)) };
}

function oneOf<T extends string>(field: string, value: unknown, words: readonly T[]): T {
  const known = words.find((word) => word === value);
  if (known === undefined)
    throw invalidField(`providerConfig.${field} is ${JSON.stringify(value)}: write ${words.join(" or ")}.`);
  return known;
}
