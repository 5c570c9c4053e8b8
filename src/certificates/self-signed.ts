import { isIP } from "node:net";

/** A certificate chain and its key, both in PEM. */
export interface KeyPair {
  readonly certificate: string;
  readonly key: string;
}

const dayMs = 24 * 3600 * 1000;
const lifetimeDays = 365;
/** How long before now a new certificate counts as valid, for callers whose clocks are behind. */
const backdatedMs = 3600 * 1000;

/** Makes a self-signed serving certificate: ECDSA P-256, one year, for the node's name and addresses.
 *  @param now milliseconds since the epoch.
 *  @see https://kubernetes.io/docs/reference/access-authn-authz/kubelet-tls-bootstrapping/ */
export async function makeSelfSigned(nodeName: string, addresses: readonly string[], now: number): Promise<KeyPair> {
  await import("reflect-metadata"); // which the next import asks for
  const x509 = await import("@peculiar/x509");
  const algorithm = { name: "ECDSA", namedCurve: "P-256", hash: "SHA-256" };
  const keys = await crypto.subtle.generateKey(algorithm, true, ["sign", "verify"]);
  const names = [...new Set([nodeName, ...addresses])].map((name) => ({
    type: isIP(name) ? ("ip" as const) : ("dns" as const),
    value: name,
  }));
  const certificate = await x509.X509CertificateGenerator.createSelfSigned({
    name: [{ CN: [`${nodeName}@${Math.floor(now / 1000)}`] }],
    keys,
    signingAlgorithm: algorithm,
    notBefore: new Date(now - backdatedMs),
    notAfter: new Date(now + lifetimeDays * dayMs),
    extensions: [
      new x509.BasicConstraintsExtension(false, undefined, true),
      new x509.KeyUsagesExtension(x509.KeyUsageFlags.digitalSignature, true),
      new x509.ExtendedKeyUsageExtension([x509.ExtendedKeyUsage.serverAuth]),
      new x509.SubjectAlternativeNameExtension(names),
    ],
  });
  const key = x509.PemConverter.encode(await crypto.subtle.exportKey("pkcs8", keys.privateKey), "PRIVATE KEY");
  return { certificate: `${certificate.toString("pem")}\n`, key: `${key}\n` };
}
