import type { webcrypto } from "node:crypto";
import { CodedError } from "../lib/errors.ts";
import { loadX509, pemOfKey } from "./x509.ts";

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
export interface ProvenKey {
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
