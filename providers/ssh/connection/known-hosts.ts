import { createHmac } from "node:crypto";

/** An entry of a known_hosts file that matches a host. */
export interface KnownKey {
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
export function hostName(host: string, port: number): string {
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
