import { createHash } from "node:crypto";
import { CodedError } from "../../lib/errors.ts";
import { isRecord } from "../../lib/record.ts";
import type { Secret } from "../../objects.ts";
import type { PullSecret } from "./pull-records.ts";

/** A registry's user. Never logged. */
export interface Credentials {
  readonly username: string;
  readonly password: string;
  /** The secret that they are from. */
  readonly source: PullSecret;
}

/** Registry locations such as `registry.example.com:5000/team` with the credentials given for them. */
type Keyring = ReadonlyMap<string, readonly Credentials[]>;

const dockerHub = "index.docker.io";

/** Credentials of pull secrets that may fit an image, the most specific location first; for Docker Hub those under its own key
 *  where nothing else fits. Empty: pull without.
 *  @param repository in full, such as `docker.io/library/busybox`.
 *  @throws CodedError invalid_argument, naming the secret, when one cannot be read.
 *  @see https://kubernetes.io/docs/concepts/containers/images/#config-json */
export function credentialsFor(repository: string, secrets: readonly Secret[]): readonly Credentials[] {
  const keyring = keyringOf(secrets);
  const fitting = [...keyring.keys()]
    .sort()
    .reverse()
    .filter((location) => locationFits(location, repository));
  const found = fitting.flatMap((location) => keyring.get(location) ?? []);
  if (found.length > 0) return found;
  return repository.startsWith("docker.io/") ? (keyring.get(dockerHub) ?? []) : [];
}

function keyringOf(secrets: readonly Secret[]): Keyring {
  const keyring = new Map<string, Credentials[]>();
  for (const secret of secrets) {
    for (const [location, entry] of Object.entries(entriesOf(secret))) {
      const key = locationKey(location);
      const credentials = credentialsOf(entry, secret);
      if (key !== undefined) keyring.set(key, [...(keyring.get(key) ?? []), credentials]);
    }
  }
  return keyring;
}

/** The entries of `.dockerconfigjson` or `.dockercfg`; none for a secret of another type. */
function entriesOf(secret: Secret): object {
  if (secret.type === "kubernetes.io/dockerconfigjson") {
    const config = parse(secret, ".dockerconfigjson");
    return "auths" in config && isRecord(config.auths) ? config.auths : {};
  }
  return secret.type === "kubernetes.io/dockercfg" ? parse(secret, ".dockercfg") : {};
}

function parse(secret: Secret, key: string): object {
  const encoded = secret.data?.[key];
  if (!encoded) return {};
  try {
    const value: unknown = JSON.parse(Buffer.from(encoded, "base64").toString());
    if (isRecord(value)) return value;
  } catch {
    // The parser's own words quote what it read, which is secret.
  }
  throw unreadable(secret, `${key} is not a JSON object`);
}

/** `auth` is base64 of `username:password`, and wins over the two apart. */
function credentialsOf(entry: unknown, secret: Secret): Credentials {
  if (!isRecord(entry)) throw unreadable(secret, "an entry is not a JSON object");
  const field = (name: string) => {
    const value: unknown = Object.hasOwn(entry, name) ? Reflect.get(entry, name) : undefined;
    return typeof value === "string" ? value : "";
  };
  const auth = field("auth");
  if (!auth) return tracked(secret, field("username"), field("password"), field("email"));
  const decoded = Buffer.from(auth, "base64").toString();
  const colon = decoded.indexOf(":");
  if (colon < 0) throw unreadable(secret, "unable to parse auth field, must be formatted as base64(username:password)");
  return tracked(secret, decoded.slice(0, colon), decoded.slice(colon + 1), field("email"));
}

function tracked({ metadata }: Secret, username: string, password: string, email: string): Credentials {
  const { uid, namespace, name } = metadata;
  const credentialHash = hashOf({ username, password, email });
  return { username, password, source: { uid, namespace, name, credentialHash } };
}

/** A kubelet's hash of credentials: of their JSON as Go writes it, so that its records hold. (kubelet, credentialprovider) */
function hashOf(credentials: Readonly<Record<string, string>>): string {
  const given = Object.fromEntries(Object.entries(credentials).filter(([, value]) => value !== ""));
  const escaped = (character: string): string => `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`;
  const json = JSON.stringify(given).replaceAll(/[<>&\u2028\u2029]/g, escaped);
  return createHash("sha256").update(json).digest("hex");
}

function unreadable({ metadata }: Secret, why: string): CodedError {
  return new CodedError("invalid_argument", `image pull secret ${metadata.namespace}/${metadata.name}: ${why}`);
}

/** Host, port and path of a location, without the API version that old clients wrote. */
function locationKey(location: string): string | undefined {
  const bare = location.replace(/^https?:\/\//, "").replace(/[?#].*$/s, "");
  const slash = bare.indexOf("/");
  const host = slash < 0 ? bare : bare.slice(0, slash);
  const path = (slash < 0 ? "" : bare.slice(slash)).replace(/^\/v[12]\//, "/");
  if (host === "") return undefined;
  return path === "/" ? host : host + path;
}

/** Labels of the host match one by one, `*` within one label; the port is equal; the path is a prefix. */
function locationFits(location: string, repository: string): boolean {
  const wanted = split(location);
  const actual = split(repository);
  if (
    wanted.port !== actual.port ||
    wanted.labels.length !== actual.labels.length ||
    !actual.path.startsWith(wanted.path)
  )
    return false;
  return wanted.labels.every((glob, index) => globFits(glob, actual.labels[index] ?? ""));
}

function split(location: string): { labels: readonly string[]; port: string; path: string } {
  const slash = location.indexOf("/");
  const authority = slash < 0 ? location : location.slice(0, slash);
  const colon = authority.lastIndexOf(":");
  const hasPort = colon >= 0 && /^\d*$/.test(authority.slice(colon + 1));
  const host = hasPort ? authority.slice(0, colon) : authority;
  return {
    labels: host.split("."),
    port: hasPort ? authority.slice(colon + 1) : "",
    path: slash < 0 ? "" : location.slice(slash),
  };
}

/** Walked from star to star, not compiled: what a user wrote must not become a slow pattern. */
function globFits(glob: string, text: string): boolean {
  const [first = "", ...rest] = glob.split("*");
  const last = rest.pop();
  if (last === undefined) return glob === text;
  let at = first.length;
  if (!text.startsWith(first)) return false;
  for (const part of rest) {
    const found = text.indexOf(part, at);
    if (found < 0) return false;
    at = found + part.length;
  }
  return text.length - last.length >= at && text.endsWith(last);
}
