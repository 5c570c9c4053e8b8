import { alternativeNames, keyAlgorithm, loadX509, pemOfKey } from "./x509.ts";

/** A certificate chain and its key, both in PEM. */
export type KeyPair = Awaited<ReturnType<typeof makeSelfSigned>>;

const dayMs = 24 * 3600 * 1000;
const lifetimeDays = 365;
/** Time by which a new certificate is backdated, for callers whose clocks are slow. */
const backdatedMs = 3600 * 1000;

/** Creates a self-signed serving certificate: ECDSA P-256, one year, for the node's name and addresses. @param now milliseconds since the
 *  epoch.
 *  @see https://kubernetes.io/docs/reference/access-authn-authz/kubelet-tls-bootstrapping/ */
export async function makeSelfSigned(nodeName: string, addresses: readonly string[], now: number) {
  const x509 = await loadX509();
  const keys = await crypto.subtle.generateKey(keyAlgorithm, true, ["sign", "verify"]);
  const names = alternativeNames([...new Set([nodeName, ...addresses])]);
  const certificate = await x509.X509CertificateGenerator.createSelfSigned({
    name: [{ CN: [`${nodeName}@${Math.floor(now / 1000)}`] }],
    keys,
    signingAlgorithm: keyAlgorithm,
    notBefore: new Date(now - backdatedMs),
    notAfter: new Date(now + lifetimeDays * dayMs),
    extensions: [
      new x509.BasicConstraintsExtension(false, undefined, true),
      new x509.KeyUsagesExtension(x509.KeyUsageFlags.digitalSignature, true),
      new x509.ExtendedKeyUsageExtension([x509.ExtendedKeyUsage.serverAuth]),
      new x509.SubjectAlternativeNameExtension(names),
    ],
  });
  return { certificate: `${certificate.toString("pem")}\n`, key: await pemOfKey(x509, keys.privateKey) };
}
