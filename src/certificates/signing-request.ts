import { createHash, createPublicKey } from "node:crypto";
import { isIP } from "node:net";

/** Whom a certificate is to name. */
export interface Subject {
  readonly commonName: string;
  readonly organization: string;
  /** IP addresses and DNS names, for a server; none for a client. */
  readonly names: readonly string[];
}

const algorithm = { name: "ECDSA", namedCurve: "P-256", hash: "SHA-256" };

/** A new private key: ECDSA P-256, PKCS #8 in PEM. */
export async function newKey(): Promise<string> {
  const x509 = await load();
  const { privateKey } = await crypto.subtle.generateKey(algorithm, true, ["sign", "verify"]);
  return `${x509.PemConverter.encode(await crypto.subtle.exportKey("pkcs8", privateKey), "PRIVATE KEY")}\n`;
}

/** The PKCS #10 request for a certificate, in PEM.
 *  @param key as `newKey` gives it. @throws when it is no such key.
 *  @see https://kubernetes.io/docs/reference/access-authn-authz/certificate-signing-requests/ */
export async function signingRequest(subject: Subject, key: string): Promise<string> {
  const x509 = await load();
  const names = subject.names.map((value) => ({ type: isIP(value) ? ("ip" as const) : ("dns" as const), value }));
  const request = await x509.Pkcs10CertificateRequestGenerator.create({
    name: [{ O: [subject.organization] }, { CN: [subject.commonName] }],
    keys: await keyPair(x509, key),
    signingAlgorithm: algorithm,
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

async function load() {
  await import("reflect-metadata"); // which the next import asks for
  return import("@peculiar/x509");
}

type X509 = Awaited<ReturnType<typeof load>>;

async function keyPair(
  x509: X509,
  pem: string,
): Promise<{ readonly privateKey: CryptoKey; readonly publicKey: CryptoKey }> {
  const raw = x509.PemConverter.decodeFirst(pem);
  const privateKey = await crypto.subtle.importKey("pkcs8", raw, algorithm, true, ["sign"]);
  const { d: _secret, key_ops: _use, ...point } = await crypto.subtle.exportKey("jwk", privateKey);
  const publicKey = await crypto.subtle.importKey("jwk", point, algorithm, true, ["verify"]);
  return { privateKey, publicKey };
}
