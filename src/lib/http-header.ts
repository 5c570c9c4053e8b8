/** Header fields by name. Texts are bytes, one a character (latin1). */
export type HeaderFields = ReadonlyMap<string, readonly string[]>;

const token = /^[\w!#$%&'*+\-.^`|~]+$/;

/** True for a valid name of a header field. @see https://www.rfc-editor.org/rfc/rfc9110#section-5.1 */
export function isHeaderName(name: string): boolean {
  return token.test(name);
}

/** True for a value that may be sent: no control characters but tabs. */
export function isHeaderValue(value: string): boolean {
  // oxlint-disable-next-line no-control-regex
  return !/[\x00-\x08\x0a-\x1f\x7f]/.test(value);
}

/** A header's name as `X-Name`; what is no valid name stays as it is. */
export function canonicalName(name: string): string {
  if (!isHeaderName(name) || /^[^a-z-][^A-Z-]*(?:-[^a-z-][^A-Z-]*)*$/.test(name)) return name;
  return name.toLowerCase().replaceAll(/(^|-)[a-z]/g, (start) => start.toUpperCase());
}

/** True if one of the values, as a comma-separated list, has the token. Case does not matter. */
export function hasToken(values: readonly string[] | undefined, wanted: string): boolean {
  return (values ?? []).some((value) => value.split(",").some((item) => trimBlanks(item).toLowerCase() === wanted));
}

/** True if a request or a response asks for another protocol. */
export function switchesProtocol(headers: HeaderFields): boolean {
  return (headers.get("Upgrade")?.[0] ?? "") !== "" && hasToken(headers.get("Connection"), "upgrade");
}

/** Without blanks and tabs at both ends. */
export function trimBlanks(text: string): string {
  let [start, end] = [0, text.length];
  while (start < end && isBlank(text[start])) start++;
  while (start < end && isBlank(text[end - 1])) end--;
  return text.slice(start, end);
}

/** True for a blank or a tab. */
export function isBlank(char: string | undefined): boolean {
  return char === " " || char === "\t";
}
