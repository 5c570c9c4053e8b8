/** Strips user, password and query, which may be secrets, from a URL. @returns undefined for an invalid URL. */
export function urlWithoutSecrets(url: string): string | undefined {
  const parsed = URL.parse(url);
  return parsed ? `${parsed.origin}${parsed.pathname}` : undefined;
}

/** The host of a URL, an IPv6 address without its brackets. */
export function hostIn({ hostname }: URL): string {
  return hostname.replace(/^\[|\]$/g, "");
}
