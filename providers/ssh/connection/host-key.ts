import { appendFile, readFile } from "node:fs/promises";
import { createHmac } from "node:crypto";
import { CodedError, messageOf } from "../../../src/lib/errors.ts";
import { hasErrno } from "../../local/errors.ts";
import type { HostKeyTrust } from "../endpoint.ts";
import { fingerprintOf, keyType } from "./fingerprint.ts";
import { type CertificateTrust, certificateRefusal } from "./host-certificate.ts";
import { certificateName, plainName, signatureAlgorithms } from "./key-algorithms.ts";
import { LinkError } from "./link-state.ts";

/** Checks the host key of one connection. */
export interface HostKeyCheck {
  /** Signature algorithms offered to the target, those of known keys first, so that the target presents a key that can be compared. */
  readonly algorithms: readonly string[];
  /** Certificate algorithms, to be offered before `algorithms`; empty when no authority is trusted. */
  readonly certificateAlgorithms: readonly string[];
  /** @param key the target's key or certificate in SSH's wire format. @returns the reason for refusing it. */
  refusal(key: Buffer): LinkError | undefined;
  /** Saves a key accepted on first use, after the target has proved that it holds it. */
  saveFirstKey(): Promise<void>;
}

/** Host and port as dialled. */
export interface HostPort {
  readonly host: string;
  readonly port: number;
}

/** Prepares the check of a target's host key; reads the known_hosts file, if any. @param now returns the current time, ms since the epoch.
 *  @throws LinkError HostKeyUnknown when that file cannot be read. */
export async function hostKeyCheck(
  trust: HostKeyTrust,
  { host, port }: HostPort,
  now: () => number,
): Promise<HostKeyCheck> {
  const name = hostName(host, port);
  if (trust.kind === "fingerprints") return createHostKeyCheck(byFingerprints(trust), { host, name, now });
  const keys = knownKeys(await readKnownHosts(trust), host, port);
  return createHostKeyCheck(byKnownKeys(keys, trust), { host, name, now });
}

/** The trusted keys and authorities of a host. */
interface KnownHost extends Omit<CertificateTrust, "host" | "now"> {
  /** Types of the host's known keys; their algorithms are offered first. */
  readonly types: ReadonlySet<string>;
  /** True if any host key is known for the host; `hasAuthorities`, if any authority is. */
  readonly hasKeys: boolean;
  readonly hasAuthorities: boolean;
  /** Source of the trust for messages: a file, or a field of the configuration. */
  readonly source: string;
  /** File in which the first key is saved, with trust on first use. */
  readonly saveTo?: string;
}

function byFingerprints({ fingerprints, authorities }: HostKeyTrust & { kind: "fingerprints" }): KnownHost {
  return {
    types: new Set(),
    hasKeys: fingerprints.length > 0,
    hasAuthorities: authorities.length > 0,
    source: "hostKeyFingerprints",
    isKnown: (key) => fingerprints.includes(fingerprintOf(key)),
    isAuthority: (key) => authorities.includes(fingerprintOf(key)),
    isRevoked: () => false,
  };
}

function byKnownKeys(
  keys: readonly KnownKey[],
  { kind, file }: Exclude<HostKeyTrust, { kind: "fingerprints" }>,
): KnownHost {
  const has = (as: KnownKey["role"]) => (key: Buffer) =>
    keys.some((each) => each.role === as && each.key === key.toString("base64"));
  const own = keys.filter(({ role }) => role === "host");
  return {
    types: new Set(own.map(({ type }) => type)),
    hasKeys: own.length > 0,
    hasAuthorities: keys.some(({ role }) => role === "authority"),
    source: file,
    isKnown: has("host"),
    isAuthority: has("authority"),
    isRevoked: has("revoked"),
    ...(kind === "firstUse" && { saveTo: file }),
  };
}

interface HostKeyContext {
  readonly host: string;
  /** The host's name in known_hosts. */
  readonly name: string;
  readonly now: () => number;
}

function createHostKeyCheck(known: KnownHost, { host, name, now }: HostKeyContext): HostKeyCheck {
  const ranked = [...signatureAlgorithms].sort(([a], [b]) => Number(known.types.has(b)) - Number(known.types.has(a)));
  const algorithms = ranked.flatMap(([, ofType]) => ofType);
  const accepted: { key?: Buffer; certificate?: Buffer } = {};
  return {
    algorithms,
    certificateAlgorithms: known.hasAuthorities ? algorithms.map(certificateName) : [],
    refusal(key) {
      if (plainName(keyType(key)) === undefined) return plainKeyRefusal(key);
      // An established connection survives the expiry of its certificate: the host key is presented again at each rekeying.
      if (accepted.certificate?.equals(key)) return undefined;
      const why = certificateRefusal(key, { ...known, host, now: now() });
      if (why !== undefined) return untrusted(name, why);
      accepted.certificate = Buffer.from(key);
      return undefined;
    },
    async saveFirstKey() {
      if (accepted.key && known.saveTo !== undefined)
        await appendFile(known.saveTo, `${name} ${keyType(accepted.key)} ${accepted.key.toString("base64")}\n`, {
          mode: 0o600,
        });
    },
  };

  function plainKeyRefusal(key: Buffer): LinkError | undefined {
    if (known.isRevoked(key)) return mismatch(name, key, known.source);
    if (known.isKnown(key)) return undefined;
    if (known.hasKeys) return mismatch(name, key, known.source);
    if (known.hasAuthorities) return uncertified(name, key);
    if (known.saveTo === undefined) return unknownKey(name, key, known.source);
    accepted.key = key;
    return undefined;
  }
}

async function readKnownHosts({ kind, file }: Exclude<HostKeyTrust, { kind: "fingerprints" }>): Promise<string> {
  try {
    return await readFile(file, "utf8");
  } catch (error) {
    if (hasErrno(error, "ENOENT") && kind === "firstUse") return "";
    throw new LinkError(
      "HostKeyUnknown",
      "failed_precondition",
      `providerConfig.knownHostsFile cannot be read: ${messageOf(error)}: create it with ssh-keyscan, and compare the key with the target's own.`,
      { cause: new CodedError("failed_precondition", messageOf(error)) },
    );
  }
}

function mismatch(name: string, key: Buffer, source: string): LinkError {
  return new LinkError(
    "HostKeyMismatch",
    "permission_denied",
    `${name} presented the ${keyType(key)} key ${fingerprintOf(key)}, which is not the one in ${source}: if the target was reinstalled, put its new key there; otherwise the connection is being intercepted.`,
  );
}

function unknownKey(name: string, key: Buffer, file: string): LinkError {
  return new LinkError(
    "HostKeyUnknown",
    "permission_denied",
    `${file} has no key for ${name}, which presented the ${keyType(key)} key ${fingerprintOf(key)}: compare it with the target's own and add it there.`,
  );
}

function uncertified(name: string, key: Buffer): LinkError {
  return new LinkError(
    "HostKeyUnknown",
    "permission_denied",
    `${name} presented the ${keyType(key)} key ${fingerprintOf(key)} without a certificate, and only an authority is trusted: set HostCertificate in its sshd_config, or add its key.`,
  );
}

function untrusted(name: string, why: string): LinkError {
  return new LinkError("HostKeyUnknown", "permission_denied", `${name} presented an untrusted certificate: ${why}.`);
}

/** An entry of a known_hosts file that matches a host. */
interface KnownKey {
  readonly type: string;
  /** The key in SSH's wire format, base64. */
  readonly key: string;
  /** The host's own key, a certificate authority for the host, or a key that must not be accepted as either. */
  readonly role: "host" | "authority" | "revoked";
}

const markers: Readonly<Record<string, KnownKey["role"]>> = { "@cert-authority": "authority", "@revoked": "revoked" };

/** Finds a host's keys in a known_hosts file, with support for hashed names, patterns and ports. Invalid lines are skipped, as in ssh, and
 *  so are lines with an unknown marker. Lines with a marker may name the host without its port, as certificates have no ports. Pure.
 *  @see https://man.openbsd.org/sshd.8#SSH_KNOWN_HOSTS_FILE_FORMAT */
export function knownKeys(file: string, host: string, port: number): readonly KnownKey[] {
  const name = hostName(host, port);
  return file.split("\n").flatMap((line): KnownKey[] => {
    const words = line.trim().split(/\s+/);
    const marker = words[0]?.startsWith("@") === true ? words.shift() : undefined;
    const role = marker === undefined ? "host" : markers[marker];
    const [names, type, key] = words;
    if (role === undefined || names === undefined || names.startsWith("#") || type === undefined || key === undefined)
      return [];
    if (!matches(names, name) && (role === "host" || !matches(names, host.toLowerCase()))) return [];
    return [{ type, key, role }];
  });
}

/** Returns a host's name in known_hosts: with the port unless that is 22. */
function hostName(host: string, port: number): string {
  const lower = host.toLowerCase();
  return port === 22 ? lower : `[${lower}]:${port}`;
}

function matches(names: string, name: string): boolean {
  if (names.startsWith("|1|")) return matchesHash(names, name);
  const patterns = names.toLowerCase().split(",");
  if (patterns.some((pattern) => pattern.startsWith("!") && glob(pattern.slice(1)).test(name))) return false;
  return patterns.some((pattern) => !pattern.startsWith("!") && glob(pattern).test(name));
}

function matchesHash(hashed: string, name: string): boolean {
  const [, , salt = "", hash] = hashed.split("|");
  return createHmac("sha1", Buffer.from(salt, "base64")).update(name).digest("base64") === hash;
}

function glob(pattern: string): RegExp {
  const source = pattern
    .replaceAll(/[.+^${}()|[\]\\]/g, "\\$&")
    .replaceAll("*", ".*")
    .replaceAll("?", ".");
  return new RegExp(`^${source}$`);
}
