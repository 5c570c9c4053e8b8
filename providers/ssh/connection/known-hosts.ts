import { createHmac } from "node:crypto";

/** A host key in a known_hosts file. */
export interface KnownKey {
  readonly type: string;
  /** The key in SSH's wire format, base64. */
  readonly key: string;
  readonly revoked: boolean;
}

/** A host's keys in a known_hosts file, by hashed names, patterns and ports, too. Lines of certificate authorities and
 *  invalid lines are skipped, as in ssh. Pure.
 *  @see https://man.openbsd.org/sshd.8#SSH_KNOWN_HOSTS_FILE_FORMAT */
export function knownKeys(file: string, host: string, port: number): readonly KnownKey[] {
  const name = hostName(host, port);
  return file.split("\n").flatMap((line): KnownKey[] => {
    const words = line.trim().split(/\s+/);
    const marker = words[0]?.startsWith("@") === true ? words.shift() : undefined;
    const [names, type, key] = words;
    if (names === undefined || names.startsWith("#") || type === undefined || key === undefined) return [];
    if (marker === "@cert-authority" || !matches(names, name)) return [];
    return [{ type, key, revoked: marker === "@revoked" }];
  });
}

/** A host's name in known_hosts: with the port unless that is 22. */
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
