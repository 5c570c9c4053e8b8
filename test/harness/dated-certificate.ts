import { webcrypto } from "node:crypto";
import { readFileSync } from "node:fs";
import { isIP } from "node:net";
import "reflect-metadata";
import * as x509 from "@peculiar/x509";
import type { KeyPair } from "./certificates.ts";

const algorithm = { name: "ECDSA", namedCurve: "P-256", hash: "SHA-256" };

/** A certificate of an authority that is valid when one says, and its key, both in PEM. */
export async function issueDated(
  authority: KeyPair,
  of: {
    /** Such as `O=system:nodes, CN=system:node:node-1`. */
    readonly subject: string;
    /** DNS names and addresses. */
    readonly names?: readonly string[];
    readonly notBefore: Date;
    readonly notAfter: Date;
  },
): Promise<{ readonly certificate: string; readonly key: string }> {
  const issuerKey = x509.PemConverter.decodeFirst(readFileSync(authority.key, "utf8"));
  const keys = await webcrypto.subtle.generateKey(algorithm, true, ["sign", "verify"]);
  const names = (of.names ?? []).map((value) => ({ type: isIP(value) ? ("ip" as const) : ("dns" as const), value }));
  const certificate = await x509.X509CertificateGenerator.create({
    subject: of.subject,
    issuer: new x509.X509Certificate(readFileSync(authority.cert, "utf8")).subject,
    notBefore: of.notBefore,
    notAfter: of.notAfter,
    publicKey: keys.publicKey,
    signingKey: await webcrypto.subtle.importKey("pkcs8", issuerKey, algorithm, false, ["sign"]),
    signingAlgorithm: algorithm,
    extensions: names.length > 0 ? [new x509.SubjectAlternativeNameExtension(names)] : [],
  });
  const key = x509.PemConverter.encode(await webcrypto.subtle.exportKey("pkcs8", keys.privateKey), "PRIVATE KEY");
  return { certificate: `${certificate.toString("pem")}\n`, key: `${key}\n` };
}
