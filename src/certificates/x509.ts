import { isIP } from "node:net";
import type { webcrypto } from "node:crypto";
import { CodedError } from "../lib/errors.ts";

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

const rsa = { name: "RSASSA-PKCS1-v1_5", hash: "SHA-256", publicExponent: new Uint8Array([1, 0, 1]) };

type KeyAlgorithm =
  | webcrypto.RsaHashedKeyGenParams
  | (webcrypto.EcKeyGenParams & webcrypto.EcdsaParams)
  | webcrypto.Algorithm;

/** Algorithms by the key types of podCertificate.
 *  @see https://kubernetes.io/docs/concepts/storage/projected-volumes/#podcertificate */
const algorithms: Readonly<Record<string, KeyAlgorithm>> = {
  RSA3072: { ...rsa, modulusLength: 3072 },
  RSA4096: { ...rsa, modulusLength: 4096 },
  ECDSAP256: { name: "ECDSA", namedCurve: "P-256", hash: "SHA-256" },
  ECDSAP384: { name: "ECDSA", namedCurve: "P-384", hash: "SHA-384" },
  ECDSAP521: { name: "ECDSA", namedCurve: "P-521", hash: "SHA-512" },
  ED25519: { name: "Ed25519" },
};

/** A private key, and a certificate request that proves its possession. */
interface ProvenKey {
  /** PKCS #8 in PEM. */
  readonly key: string;
  /** PKCS #10 in DER, Base64, without a subject. */
  readonly request: string;
}

/** Generates a key for a pod certificate. @throws CodedError invalid_argument for an unknown type. */
export async function generateKeyAndProof(keyType: string): Promise<ProvenKey> {
  const algorithm = algorithms[keyType];
  if (!algorithm) throw new CodedError("invalid_argument", `unknown key type ${JSON.stringify(keyType)}`);
  const x509 = await loadX509();
  const keys = (await crypto.subtle.generateKey(algorithm, true, ["sign", "verify"])) as webcrypto.CryptoKeyPair;
  const request = await x509.Pkcs10CertificateRequestGenerator.create({ keys, signingAlgorithm: algorithm });
  return { key: await pemOfKey(x509, keys.privateKey), request: Buffer.from(request.rawData).toString("base64") };
}
