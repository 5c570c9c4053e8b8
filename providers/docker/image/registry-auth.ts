import type { AuthConfig } from "../../../src/gen/cri.ts";

/** The header with which one call shows its credentials to a registry; none without credentials.
 *  @see https://docs.docker.com/reference/api/engine/version/v1.41/#section/Authentication */
export function registryAuth(auth: AuthConfig | undefined): Readonly<Record<string, string>> {
  if (!auth) return {};
  const { username, password } = userOf(auth);
  const fields = {
    username,
    password,
    serveraddress: auth.serverAddress,
    identitytoken: auth.identityToken,
    registrytoken: auth.registryToken,
  };
  const given = Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== ""));
  if (Object.keys(given).length === 0) return {};
  // The daemon wants the URL alphabet with its padding, which Node leaves out.
  const text = Buffer.from(JSON.stringify(given)).toString("base64").replaceAll("+", "-").replaceAll("/", "_");
  return { "X-Registry-Auth": text };
}

/** `auth` is base64 of `username:password`, for runtimes that are not given the two apart. */
function userOf({ username, password, auth }: AuthConfig): { username: string; password: string } {
  if (username !== "" || auth === "") return { username, password };
  const decoded = Buffer.from(auth, "base64").toString();
  const colon = decoded.indexOf(":");
  return colon < 0
    ? { username: decoded, password: "" }
    : { username: decoded.slice(0, colon), password: decoded.slice(colon + 1) };
}
