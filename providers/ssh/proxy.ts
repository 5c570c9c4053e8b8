import { hostIn } from "../../src/lib/url-text.ts";
import { invalidField } from "../config-fields.ts";
import { readPath } from "./endpoint.ts";

/** A proxy for the connection to the first machine. */
export interface SshProxy {
  readonly scheme: "socks5" | "http" | "https";
  readonly host: string;
  readonly port: number;
  readonly user?: string;
  /** File with the proxy's password, read on each connection. */
  readonly passwordFile?: string;
}

const defaultPorts = { socks5: 1080, http: 3128, https: 443 } as const;

/** Reads the fields `proxy` and `proxyPasswordFile`; undefined without a proxy.
 *  @throws CodedError invalid_argument, a sentence with the field and the remedy. */
export function readProxy(proxy: unknown, passwordFile: unknown): SshProxy | undefined {
  if (proxy === undefined) {
    if (passwordFile !== undefined)
      throw invalidField("providerConfig.proxyPasswordFile is set without proxy: add proxy, or remove it.");
    return undefined;
  }
  const text = typeof proxy === "string" ? proxy : "";
  const url = URL.canParse(text) ? new URL(text) : undefined;
  const scheme = (["socks5", "http", "https"] as const).find((one) => `${one}:` === url?.protocol);
  if (!url || !scheme || url.hostname === "" || !["", "/"].includes(url.pathname) || url.search !== "")
    throw invalidField(
      `providerConfig.proxy is ${JSON.stringify(withoutPassword(proxy))}, not a proxy: write socks5://host:1080, http://host:3128 or https://host:443, with user@ before the host if it requires a login.`,
    );
  if (url.password !== "")
    throw invalidField(
      "providerConfig.proxy contains a password: write it into a file, and set proxyPasswordFile to that file.",
    );
  const user = decodeURIComponent(url.username);
  if ((user === "") !== (passwordFile === undefined))
    throw invalidField(
      user === ""
        ? "providerConfig.proxyPasswordFile is set without a user: write the user into proxy, as in socks5://user@host:1080."
        : "providerConfig.proxy has a user without a password: add proxyPasswordFile.",
    );
  return {
    scheme,
    host: hostIn(url),
    // URL omits the default port of a scheme, 80 or 443.
    port: Number(url.port) || (/:80\/?$/.test(text) ? 80 : defaultPorts[scheme]),
    ...(user !== "" && { user, passwordFile: readPath("providerConfig.proxyPasswordFile", passwordFile) }),
  };
}

function withoutPassword(text: unknown): unknown {
  return typeof text === "string" ? text.replace(/:[^:/@]*@/, ":…@") : text;
}
