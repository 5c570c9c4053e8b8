import type { AuthConfig } from "../../../src/gen/cri.ts";

/** Header with the registry credentials of one call; empty without credentials.
 *  @see https://docs.docker.com/reference/api/engine/version/v1.41/#section/Authentication */
export function registryAuth(auth: AuthConfig | undefined): Readonly<Record<string, string>> {
  if (!auth) return {};
  const { username, password } = credentialsOf(auth);
  const fields = {
    username,
    password,
    serveraddress: auth.serverAddress,
    identitytoken: auth.identityToken,
    registrytoken: auth.registryToken,
  };
  const given = Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== ""));
  if (Object.keys(given).length === 0) return {};
  // The daemon expects URL-safe base64 with padding, which Node omits.
  const text = Buffer.from(JSON.stringify(given)).toString("base64").replaceAll("+", "-").replaceAll("/", "_");
  return { "X-Registry-Auth": text };
}

/** `auth` is base64 of `username:password`, an alternative to the separate fields. */
function credentialsOf({ username, password, auth }: AuthConfig): { username: string; password: string } {
  if (username !== "" || auth === "") return { username, password };
  const decoded = Buffer.from(auth, "base64").toString();
  const colon = decoded.indexOf(":");
  return colon < 0
    ? { username: decoded, password: "" }
    : { username: decoded.slice(0, colon), password: decoded.slice(colon + 1) };
}
