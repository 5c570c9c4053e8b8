import type { Secret } from "../objects.ts";

/** Returns the API path of a Secret. */
export function secretPath(namespace: string, name: string): string {
  return `/api/v1/namespaces/${encodeURIComponent(namespace)}/secrets/${encodeURIComponent(name)}`;
}

/** Decodes one entry of a Secret's data; empty if there is no such entry. */
export function secretText(secret: Pick<Secret, "data"> | undefined, key: string): string {
  return Buffer.from(secret?.data?.[key] ?? "", "base64").toString("utf8");
}
