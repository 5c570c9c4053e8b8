import { isIP } from "node:net";
import { goQuoteBytes } from "./go-quote.ts";

/** A URL as parsed by Go's net/url. All texts are latin1 strings of bytes: URLs need not be UTF-8. The standard `URL` is no
 *  substitute: it rejects, repairs and normalizes where Go does not.
 *  @see https://pkg.go.dev/net/url#URL */
export interface GoUrl {
  readonly scheme: string;
  /** The rest after the scheme if it is not a path. */
  readonly opaque: string;
  readonly user?: { readonly name: string; readonly password?: string };
  /** `host` or `host:port`, an IPv6 address in brackets. */
  readonly host: string;
  /** Unescaped. */
  readonly path: string;
  /** The original encoding, if escaping `path` would give a different one. */
  readonly rawPath: string;
  readonly query: string;
  /** True for a `?` without a query. */
  readonly emptyQuery: boolean;
  /** Unescaped. */
  readonly fragment: string;
  readonly rawFragment: string;
  /** True for a scheme and a path without `//` between them. */
  readonly withoutAuthority: boolean;
}

export const emptyUrl: GoUrl = {
  scheme: "",
  opaque: "",
  host: "",
  path: "",
  rawPath: "",
  query: "",
  emptyQuery: false,
  fragment: "",
  rawFragment: "",
  withoutAuthority: false,
};

/** Characters that are not escaped, in addition to letters, digits and `-._~`. */
const unescaped = {
  path: "$&+,/:;=@",
  host: "!\"$&'()*+,:;<=>[]",
  user: "$&+,;=",
  fragment: "!$&()*+,/:;=?@",
} as const;

type Part = keyof typeof unescaped;

/** Parses a URL or a reference. @throws Error with Go's text: `parse "…": why`. */
export function parseUrl(text: string): GoUrl {
  const [whole, fragment] = cut(text, "#");
  const url = explained(whole, () => parseWithoutFragment(whole));
  if (fragment === "") return url;
  const unescapedFragment = explained(text, () => unescape(fragment, "fragment"));
  const isUsual = escape(unescapedFragment, "fragment") === fragment;
  return { ...url, fragment: unescapedFragment, rawFragment: isUsual ? "" : fragment };
}

function explained<T>(text: string, parse: () => T): T {
  try {
    return parse();
  } catch (error) {
    throw new Error(`parse ${goQuoteBytes(text)}: ${error instanceof Error ? error.message : ""}`, { cause: error });
  }
}

/** True for a text with ASCII control characters. */
export function hasControls(text: string): boolean {
  // oxlint-disable-next-line no-control-regex
  return /[\x00-\x1f\x7f]/.test(text);
}

function parseWithoutFragment(text: string): GoUrl {
  if (hasControls(text)) throw new Error("net/url: invalid control character in URL");
  if (text === "*") return { ...emptyUrl, path: "*" };
  if (text.startsWith(":")) throw new Error("missing protocol scheme");
  const scheme = /^([a-z][a-z0-9+.-]*):/i.exec(text)?.[1] ?? "";
  const afterScheme = scheme ? text.slice(scheme.length + 1) : text;
  const emptyQuery = afterScheme.indexOf("?") === afterScheme.length - 1 && afterScheme !== "";
  const [rest, query] = cut(afterScheme, "?");
  const base = { ...emptyUrl, scheme: scheme.toLowerCase(), query, emptyQuery };
  if (!rest.startsWith("/")) {
    if (scheme) return { ...base, opaque: rest };
    if (cut(rest, "/")[0].includes(":")) throw new Error("first path segment in URL cannot contain colon");
  }
  if (!rest.startsWith("//") || (!scheme && rest.startsWith("///")))
    return { ...base, ...pathOf(rest), withoutAuthority: scheme !== "" && rest.startsWith("/") };
  const slash = rest.indexOf("/", 2);
  const authority = slash < 0 ? rest.slice(2) : rest.slice(2, slash);
  return { ...base, ...parseAuthority(base.scheme, authority), ...pathOf(slash < 0 ? "" : rest.slice(slash)) };
}

function parseAuthority(scheme: string, authority: string): Pick<GoUrl, "host" | "user"> {
  const at = authority.lastIndexOf("@");
  const host = parseHost(scheme, authority.slice(at + 1));
  if (at < 0) return { host };
  const userinfo = authority.slice(0, at);
  if (!/^[\w\-.:~!$&'()*+,;=%@]*$/.test(userinfo)) throw new Error("net/url: invalid userinfo");
  const [name, password] = cut(userinfo, ":");
  const user = { name: unescape(name, "user") };
  return { host, user: userinfo.includes(":") ? { ...user, password: unescape(password, "user") } : user };
}

function parseHost(scheme: string, host: string): string {
  const open = host.lastIndexOf("[");
  if (open > 0) throw new Error("invalid IP-literal");
  if (open === 0) return parseIpLiteral(host);
  const [first, last] = [host.indexOf(":"), host.lastIndexOf(":")];
  const colon = scheme === "http" || scheme === "https" ? first : last;
  if (colon >= 0) checkPort(host.slice(colon));
  return unescape(host, "host");
}

function parseIpLiteral(host: string): string {
  const close = host.lastIndexOf("]");
  if (close < 0) throw new Error("missing ']' in host");
  const port = host.slice(close + 1);
  checkPort(port);
  const literal = host.slice(1, close);
  const zoneAt = literal.indexOf("%25");
  const address =
    zoneAt < 0
      ? unescape(literal, "host")
      : unescape(literal.slice(0, zoneAt), "host") + unescape(literal.slice(zoneAt), "zone");
  checkAddress(address);
  return `[${address}]${port}`;
}

function checkPort(text: string): void {
  if (!/^(:\d*)?$/.test(text)) throw new Error(`invalid port ${goQuoteBytes(text)} after host`);
}

function checkAddress(text: string): void {
  const [address, zone] = cut(text, "%");
  const invalid = (why: string) => new Error(`invalid host: ParseAddr(${goQuoteBytes(text)}): ${why}`);
  if (!/[.:]/.test(address)) throw invalid(text.includes("%") ? "missing IPv6 address" : "unable to parse IP");
  if (isIP(address) === 4 && !text.includes("%")) throw new Error("invalid IP-literal");
  if (isIP(address) !== 6) throw invalid("unable to parse IP");
  if (text.includes("%") && zone === "") throw invalid("zone must be a non-empty string");
}

function pathOf(text: string): Pick<GoUrl, "path" | "rawPath"> {
  const path = unescape(text, "path");
  return { path, rawPath: escape(path, "path") === text ? "" : text };
}

function unescape(text: string, part: Part | "zone"): string {
  for (const { 0: found } of text.matchAll(/%.{0,2}/gs)) {
    const isEscape = /^%[0-9a-f]{2}$/i.test(found);
    const code = Number.parseInt(found.slice(1), 16);
    const isAllowed =
      part === "host"
        ? code >= 0x80 || found === "%25"
        : part !== "zone" || found === "%25" || code === 0x20 || isPlain(String.fromCharCode(code), "host");
    if (!isEscape || !isAllowed) throw new Error(`invalid URL escape ${goQuoteBytes(found)}`);
  }
  if (part === "host" || part === "zone") {
    const bad = text.split("").find((char) => char !== "%" && char < "\x80" && !isPlain(char, "host"));
    if (bad !== undefined) throw new Error(`invalid character ${goQuoteBytes(bad)} in host name`);
  }
  return text.replaceAll(/%(..)/gs, (_, hex: string) => String.fromCharCode(Number.parseInt(hex, 16)));
}

function isPlain(char: string, part: Part): boolean {
  return /[A-Za-z0-9\-._~]/.test(char) || unescaped[part].includes(char);
}

function escape(text: string, part: Part): string {
  return text.replaceAll(/[^A-Za-z0-9\-._~]/gs, (char) => (isPlain(char, part) ? char : percent(char)));
}

function percent(char: string): string {
  return `%${char.charCodeAt(0).toString(16).toUpperCase().padStart(2, "0")}`;
}

/** The escaped path: in its original encoding if that is valid. */
function escapedPath({ path, rawPath }: GoUrl): string {
  if (rawPath && isValidEscaped(rawPath, "path")) return rawPath;
  return path === "*" ? "*" : escape(path, "path");
}

function escapedFragment({ fragment, rawFragment }: GoUrl): string {
  return rawFragment && isValidEscaped(rawFragment, "fragment") ? rawFragment : escape(fragment, "fragment");
}

function isValidEscaped(text: string, part: Part): boolean {
  return text.split("").every((char) => "!$&'()*+,;=:@[]%".includes(char) || isPlain(char, part));
}

export function urlText(url: GoUrl): string {
  const { scheme, opaque, user, host, query, emptyQuery, fragment } = url;
  const start = scheme ? `${scheme}:` : "";
  const end = (emptyQuery || query ? `?${query}` : "") + (fragment ? `#${escapedFragment(url)}` : "");
  if (opaque) return `${start}${opaque}${end}`;
  const authority = authorityText(url);
  const path = escapedPath(url);
  const separator = path && !path.startsWith("/") && host ? "/" : "";
  const isAmbiguous = start === "" && authority === "" && user === undefined && cut(path, "/")[0].includes(":");
  return `${start}${authority}${separator}${isAmbiguous ? "./" : ""}${path}${end}`;
}

function authorityText({ scheme, user, host, path, withoutAuthority }: GoUrl): string {
  if (!scheme && !host && !user) return "";
  if (!host && !user && (withoutAuthority || !path)) return "";
  return `//${user ? `${userText(user)}@` : ""}${escape(host, "host")}`;
}

function userText({ name, password }: NonNullable<GoUrl["user"]>): string {
  return escape(name, "user") + (password === undefined ? "" : `:${escape(password, "user")}`);
}

/** The URL with its password masked, like Go's `Redacted`. */
export function redactedUrl(url: GoUrl): string {
  const { user } = url;
  if (user?.password === undefined) return urlText(url);
  return urlText(url).replace(`${userText(user)}@`, () => `${user.name}:***@`);
}

/** The URL as a text, without user and password. */
export function urlWithoutUser(url: GoUrl): string {
  const { user: _, ...rest } = url;
  return urlText(rest);
}

/** Path and query for a request line. */
export function requestUri(url: GoUrl): string {
  const { scheme, opaque, query, emptyQuery } = url;
  const start = opaque.startsWith("//") ? `${scheme}:${opaque}` : opaque || escapedPath(url) || "/";
  return start + (emptyQuery || query ? `?${query}` : "");
}

/** Host without port and brackets. */
export function hostOf(url: GoUrl): string {
  return splitHost(url.host).host;
}

/** Port; empty if the URL has none. */
export function portOf(url: GoUrl): string {
  return splitHost(url.host).port;
}

function splitHost(text: string): { host: string; port: string } {
  const [, before = text, port = ""] = /^(.*):(\d*)$/s.exec(text) ?? [];
  return { host: before.replace(/^\[(.*)\]$/s, "$1"), port };
}

/** Resolves a reference against a base URL. */
export function resolveReference(base: GoUrl, reference: GoUrl): GoUrl {
  const scheme = reference.scheme || base.scheme;
  if (reference.scheme || reference.host || reference.user)
    return { ...reference, scheme, ...pathOf(resolvedPath(escapedPath(reference), "")) };
  const { user: _, ...withoutUser } = reference;
  if (reference.opaque) return { ...withoutUser, scheme, host: "", path: "" };
  const isSameResource = !reference.path && !reference.emptyQuery && !reference.query;
  const inherited = isSameResource
    ? {
        query: base.query,
        ...(!reference.fragment && { fragment: base.fragment, rawFragment: base.rawFragment }),
      }
    : {};
  if (!reference.path && base.opaque)
    return { ...withoutUser, ...inherited, scheme, opaque: base.opaque, host: "", path: "" };
  return {
    ...withoutUser,
    ...inherited,
    scheme,
    host: base.host,
    ...(base.user && { user: base.user }),
    ...pathOf(resolvedPath(escapedPath(base), escapedPath(reference))),
  };
}

/** Resolves a path against a base path and removes dot segments. */
function resolvedPath(base: string, reference: string): string {
  const full = reference.startsWith("/")
    ? reference
    : reference === ""
      ? base
      : base.slice(0, base.lastIndexOf("/") + 1) + reference;
  if (full === "") return "";
  const kept: string[] = [];
  const segments = full.split("/");
  for (const [index, segment] of segments.entries()) {
    if (segment === "..") kept.pop();
    else if (segment !== "." && !(index === 0 && segment === "")) kept.push(segment);
  }
  const isDirectory = [".", ".."].includes(segments.at(-1) ?? "");
  return `/${kept.join("/")}${isDirectory && kept.length > 0 ? "/" : ""}`;
}

function cut(text: string, separator: string): readonly [string, string] {
  const at = text.indexOf(separator);
  return at < 0 ? [text, ""] : [text.slice(0, at), text.slice(at + separator.length)];
}
