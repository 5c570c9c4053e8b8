/** A URL without its user, password and query, which may be secrets. @returns undefined for a text that is no URL. */
export function urlWithoutSecrets(url: string): string | undefined {
  const parsed = URL.parse(url);
  return parsed ? `${parsed.origin}${parsed.pathname}` : undefined;
}
