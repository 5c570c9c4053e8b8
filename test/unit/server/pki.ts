import "reflect-metadata";
import * as x509 from "@peculiar/x509";

const algorithm = { name: "ECDSA", namedCurve: "P-256", hash: "SHA-256" };
const dayMs = 24 * 3600 * 1000;

export const serverAuth = x509.ExtendedKeyUsage.serverAuth;

export interface Identity {
  readonly cert: string;
  readonly key: string;
}

/** A test's certificate authority. */
export interface TestCA {
  readonly certificate: string;
  /** @param subject such as `CN=alice, O=admins`.
   *  @param days from now until it expires; negative for an expired one. */
  client(subject: string, options?: { days?: number; usage?: x509.ExtendedKeyUsageType }): Promise<Identity>;
}

export async function testCA(name: string): Promise<TestCA> {
  const keys = await crypto.subtle.generateKey(algorithm, true, ["sign", "verify"]);
  const ca = await x509.X509CertificateGenerator.createSelfSigned({
    name: `CN=${name}`,
    keys,
    signingAlgorithm: algorithm,
    notBefore: new Date(Date.now() - 30 * dayMs),
    notAfter: new Date(Date.now() + 30 * dayMs),
    extensions: [
      new x509.BasicConstraintsExtension(true, undefined, true),
      new x509.KeyUsagesExtension(x509.KeyUsageFlags.keyCertSign, true),
    ],
  });
  return {
    certificate: ca.toString("pem"),
    async client(subject, { days = 1, usage = x509.ExtendedKeyUsage.clientAuth } = {}) {
      const own = await crypto.subtle.generateKey(algorithm, true, ["sign", "verify"]);
      const certificate = await x509.X509CertificateGenerator.create({
        subject,
        issuer: ca.subject,
        signingKey: keys.privateKey,
        publicKey: own.publicKey,
        signingAlgorithm: algorithm,
        notBefore: new Date(Date.now() - 20 * dayMs),
        notAfter: new Date(Date.now() + days * dayMs),
        extensions: [new x509.ExtendedKeyUsageExtension([usage])],
      });
      const key = x509.PemConverter.encode(await crypto.subtle.exportKey("pkcs8", own.privateKey), "PRIVATE KEY");
      return { cert: certificate.toString("pem"), key };
    },
  };
}
