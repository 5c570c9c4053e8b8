import { isIP } from "node:net";

/** The library that creates certificates and requests, loaded on first use. */
export async function loadX509() {
  await import("reflect-metadata"); // required by the next import
  return import("@peculiar/x509");
}

export type X509 = Awaited<ReturnType<typeof loadX509>>;

/** The kubelet's key type: ECDSA P-256. */
export const keyAlgorithm = { name: "ECDSA", namedCurve: "P-256", hash: "SHA-256" };

/** The alternative names of a certificate. @param names IP addresses and DNS names. */
export function alternativeNames(names: readonly string[]): { readonly type: "ip" | "dns"; readonly value: string }[] {
  return names.map((value) => ({ type: isIP(value) ? "ip" : "dns", value }));
}

/** A private key in PKCS #8 as PEM. */
export async function pemOfKey(x509: X509, key: CryptoKey): Promise<string> {
  return `${x509.PemConverter.encode(await crypto.subtle.exportKey("pkcs8", key), "PRIVATE KEY")}\n`;
}
