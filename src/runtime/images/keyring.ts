import type { Secret } from "../../objects.ts";
import { CodedError, messageOf } from "../../lib/errors.ts";
import { type RegistryLogin, type Logins, credentialHash, parseDockerConfig } from "./docker-config.ts";
import type { PullAccount, PullSecret } from "./pull-records.ts";

/** Source of credentials: a pull secret, a service account (through a plugin), or, if undefined, the node. */
export type ImageCredentialSource =
  | { readonly secret: PullSecret; readonly account?: never }
  | { readonly account: PullAccount; readonly secret?: never }
  | undefined;

/** Registry credentials and their source. Never logged. */
export interface ImageCredentials extends Omit<RegistryLogin, "email"> {
  readonly source: ImageCredentialSource;
}

/** Credentials by registry location, such as `registry.example.com:5000/team`. */
export type Keyring = readonly (readonly [location: string, credentials: ImageCredentials])[];

const dockerHub = "index.docker.io";

/** Credentials that may fit an image, most specific location first; for Docker Hub, those under its legacy key if nothing else fits.
 *  Empty: pull anonymously.
 *  @param repository fully qualified, such as `docker.io/library/busybox`.
 *  @see https://kubernetes.io/docs/concepts/containers/images/#config-json */
export function credentialsFor(repository: string, keyring: Keyring): readonly ImageCredentials[] {
  const byLocation = new Map<string, ImageCredentials[]>();
  for (const [location, credentials] of keyring) {
    const key = locationKey(location);
    if (key !== undefined) byLocation.set(key, [...(byLocation.get(key) ?? []), credentials]);
  }
  const matching = [...byLocation.keys()]
    .sort()
    .reverse()
    .filter((location) => locationMatches(location, repository));
  const found = matching.flatMap((location) => byLocation.get(location) ?? []);
  if (found.length > 0) return found;
  return repository.startsWith("docker.io/") ? (byLocation.get(dockerHub) ?? []) : [];
}

export function keyringOf(logins: Logins, source: ImageCredentialSource): Keyring {
  return logins.map(([location, { username, password }]) => [location, { username, password, source }]);
}

/** The credentials of pull secrets; secrets of other types are ignored.
 *  @throws CodedError invalid_argument that names the secret if one cannot be parsed. */
export function keyringOfSecrets(secrets: readonly Secret[]): Keyring {
  return secrets.flatMap((secret) => {
    const { uid, namespace, name } = secret.metadata;
    return loginsOfSecret(secret).map(([location, login]) => {
      const source = { secret: { uid, namespace, name, credentialHash: credentialHash(login) } };
      return [location, { username: login.username, password: login.password, source }] as const;
    });
  });
}

const layouts = {
  "kubernetes.io/dockerconfigjson": ["config.json", ".dockerconfigjson"],
  "kubernetes.io/dockercfg": [".dockercfg", ".dockercfg"],
} as const;

function loginsOfSecret({ type, data, metadata }: Secret): Logins {
  const known = Object.entries(layouts).find(([of]) => of === type)?.[1];
  if (!known) return [];
  const [layout, key] = known;
  const encoded = data?.[key];
  if (!encoded) return [];
  try {
    return parseDockerConfig(Buffer.from(encoded, "base64").toString(), layout);
  } catch (error) {
    const where = `image pull secret ${metadata.namespace}/${metadata.name}`;
    throw new CodedError("invalid_argument", `${where}: ${key} ${messageOf(error)}`);
  }
}

/** Host, port and path of a location, without scheme and legacy API version. */
function locationKey(location: string): string | undefined {
  const bare = location.replace(/^https?:\/\//, "").replace(/[?#].*$/s, "");
  const slash = bare.indexOf("/");
  const host = slash < 0 ? bare : bare.slice(0, slash);
  const path = (slash < 0 ? "" : bare.slice(slash)).replace(/^\/v[12]\//, "/");
  if (host === "") return undefined;
  return path === "/" ? host : host + path;
}

/** Host labels match one by one, with `*` within a label; ports must be equal; the path is a prefix. */
export function locationMatches(location: string, repository: string): boolean {
  const wanted = split(location);
  const actual = split(repository);
  if (
    wanted.port !== actual.port ||
    wanted.labels.length !== actual.labels.length ||
    !actual.path.startsWith(wanted.path)
  )
    return false;
  return wanted.labels.every((glob, index) => globMatches(glob, actual.labels[index] ?? ""));
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

/** Matches segment by segment instead of by a regular expression, so that user input cannot cause catastrophic backtracking. */
function globMatches(glob: string, text: string): boolean {
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
