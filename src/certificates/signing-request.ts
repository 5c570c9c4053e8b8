import { createHash, createPublicKey } from "node:crypto";
import { alternativeNames, keyAlgorithm, loadX509, pemOfKey, type X509 } from "./x509.ts";

/** Names of a certificate. */
export interface Subject {
  readonly commonName: string;
  readonly organization: string;
  /** IP addresses and DNS names of a server; empty for a client. */
  readonly names: readonly string[];
}

/** Generates a private key: ECDSA P-256, PKCS #8 in PEM. */
export async function newKey(): Promise<string> {
  const x509 = await loadX509();
  const { privateKey } = await crypto.subtle.generateKey(keyAlgorithm, true, ["sign", "verify"]);
  return pemOfKey(x509, privateKey);
}

/** Creates a PKCS #10 certificate request in PEM. @param key as `newKey` returns it. @throws for any other key.
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

/** A request name derived from the key and the contents, so that the same request is found again after a restart. */
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
