/** Header fields by name. Texts are latin1 strings of bytes. */
export type HeaderFields = ReadonlyMap<string, readonly string[]>;

const token = /^[\w!#$%&'*+\-.^`|~]+$/;

/** True for a valid name of a header field. @see https://www.rfc-editor.org/rfc/rfc9110#section-5.1 */
export function isHeaderName(name: string): boolean {
  return token.test(name);
}

/** True for a valid header value: no control characters except tabs. */
export function isHeaderValue(value: string): boolean {
  // oxlint-disable-next-line no-control-regex
  return !/[\x00-\x08\x0a-\x1f\x7f]/.test(value);
}

/** The canonical form of a header name (`X-Name`); invalid names are returned as is. */
export function canonicalHeaderName(name: string): string {
  if (!isHeaderName(name) || /^[^a-z-][^A-Z-]*(?:-[^a-z-][^A-Z-]*)*$/.test(name)) return name;
  return name.toLowerCase().replaceAll(/(^|-)[a-z]/g, (start) => start.toUpperCase());
}

/** True if one of the comma-separated values contains the token, ignoring case. */
function hasToken(values: readonly string[] | undefined, wanted: string): boolean {
  return (values ?? []).some((value) => value.split(",").some((item) => trimBlanks(item).toLowerCase() === wanted));
}

/** True if a request or response upgrades the protocol. */
export function switchesProtocol(headers: HeaderFields): boolean {
  return (headers.get("Upgrade")?.[0] ?? "") !== "" && hasToken(headers.get("Connection"), "upgrade");
}

/** Trims spaces and tabs at both ends. */
export function trimBlanks(text: string): string {
  let [start, end] = [0, text.length];
  while (start < end && isBlank(text[start])) start++;
  while (start < end && isBlank(text[end - 1])) end--;
  return text.slice(start, end);
}

/** True for a space or a tab. */
export function isBlank(char: string | undefined): boolean {
  return char === " " || char === "\t";
}
