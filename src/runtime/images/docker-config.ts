import { createHash } from "node:crypto";
import { entriesOf, isRecord } from "../../lib/record.ts";

/** Registry credentials. Never logged. */
export interface RegistryLogin {
  readonly username: string;
  readonly password: string;
  readonly email: string;
}

/** Credentials by registry location, such as `registry.example.com:5000/team`. */
export type Logins = readonly (readonly [location: string, login: RegistryLogin])[];

/** The two layouts of a Docker configuration: `config.json` has its entries below `auths`, the older `.dockercfg` at the top. */
export type DockerConfigLayout = "config.json" | ".dockercfg";

/** The credentials of a Docker configuration. @throws Error whose message is a predicate ("is not …", "has …") for the caller to prefix;
 *  it quotes nothing, as the content is secret.
 *  @see https://kubernetes.io/docs/concepts/containers/images/#config-json */
export function parseDockerConfig(text: string, layout: DockerConfigLayout): Logins {
  const config = parseObject(text);
  return entriesOf(layout === "config.json" ? config["auths"] : config).map(([location, entry]) => [
    location,
    parseEntry(entry),
  ]);
}

/** The kubelet's hash of credentials, over their JSON as Go writes it, so that its records stay valid. (kubelet, credentialprovider) */
export function credentialHash({ username, password, email }: RegistryLogin): string {
  const given = Object.entries({ username, password, email }).filter(([, value]) => value !== "");
  const escaped = (character: string): string => `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`;
  const json = JSON.stringify(Object.fromEntries(given)).replaceAll(/[<>&\u2028\u2029]/g, escaped);
  return createHash("sha256").update(json).digest("hex");
}

function parseObject(text: string): Readonly<Record<string, unknown>> {
  try {
    const value: unknown = JSON.parse(text);
    if (isRecord(value)) return value;
  } catch {
    // The parser's error message quotes its input.
  }
  throw new Error("is not a JSON object");
}

/** `auth` is base64 of `username:password` and takes precedence over both fields. */
function parseEntry(entry: unknown): RegistryLogin {
  if (!isRecord(entry)) throw new Error("has an entry that is not a JSON object");
  const field = (name: string) => {
    const value: unknown = Object.hasOwn(entry, name) ? Reflect.get(entry, name) : undefined;
    return typeof value === "string" ? value : "";
  };
  const email = field("email");
  const auth = field("auth");
  if (!auth) return { username: field("username"), password: field("password"), email };
  const decoded = Buffer.from(auth, "base64").toString();
  const colon = decoded.indexOf(":");
  if (colon < 0) throw new Error("has an auth field that is not base64 of username:password");
  return { username: decoded.slice(0, colon), password: decoded.slice(colon + 1), email };
}
