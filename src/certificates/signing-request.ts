import { createHash, createPublicKey } from "node:crypto";
import { alternativeNames, keyAlgorithm, loadX509, pemOfKey, type X509 } from "./x509.ts";

/** Whom a certificate is to name. */
export interface Subject {
  readonly commonName: string;
  readonly organization: string;
  /** IP addresses and DNS names, for a server; none for a client. */
  readonly names: readonly string[];
}

/** A new private key: ECDSA P-256, PKCS #8 in PEM. */
export async function newKey(): Promise<string> {
  const x509 = await loadX509();
  const { privateKey } = await crypto.subtle.generateKey(keyAlgorithm, true, ["sign", "verify"]);
  return pemOfKey(x509, privateKey);
}

/** The PKCS #10 request for a certificate, in PEM.
 *  @param key as `newKey` gives it. @throws when it is no such key.
 *  @see https://kubernetes.io/docs/reference/access-authn-authz/certificate-signing-requests/ */
export async function signingRequest(subject: Subject, key: string): Promise<string> {
  const x509 = await loadX509();
  const names = alternativeNames(subject.names);
  const request = await x509.Pkcs10CertificateRequestGenerator.create({
    name: [{ O: [subject.organization] }, { CN: [subject.commonName] }],
    keys: await keyPair(x509, key),
    signingAlgorithm: keyAlgorithm,
    extensions: names.length > 0 ? [new x509.SubjectAlternativeNameExtension(names)] : [],
  });
  return `${request.toString("pem")}\n`;
}

/** A name that is the same for the same key and the same wishes: who asks again after a restart finds their own request. */
export function requestName(key: string, signerName: string, { commonName, organization, names }: Subject): string {
  const publicKey = createPublicKey(key).export({ type: "spki", format: "pem" });
  const wishes = JSON.stringify([publicKey, signerName, commonName, organization, names]);
  return `node-csr-${createHash("sha256").update(wishes).digest("hex").slice(0, 40)}`;
}

async function keyPair(
  x509: X509,
  pem: string,
): Promise<{ readonly privateKey: CryptoKey; readonly publicKey: CryptoKey }> {
  const raw = x509.PemConverter.decodeFirst(pem);
  const privateKey = await crypto.subtle.importKey("pkcs8", raw, keyAlgorithm, true, ["sign"]);
  const { d: _secret, key_ops: _use, ...point } = await crypto.subtle.exportKey("jwk", privateKey);
  const publicKey = await crypto.subtle.importKey("jwk", point, keyAlgorithm, true, ["verify"]);
  return { privateKey, publicKey };
}
