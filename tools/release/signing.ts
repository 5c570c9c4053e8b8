import { createPublicKey, generateKeyPairSync, type KeyObject, sign, verify } from "node:crypto";

/** A key of ECDSA on P-256, as cosign has it. */
export interface SigningKey {
  readonly secret: KeyObject;
  /** The other half, PEM: cosign.pub. */
  readonly publicPem: string;
}

/** The type of what DSSE carries here. @see https://github.com/in-toto/attestation/blob/main/spec/v1/envelope.md */
const statementType = "application/vnd.in-toto+json";

/** A statement with a signature of it. @see https://github.com/secure-systems-lab/dsse/blob/master/envelope.md */
export interface Envelope {
  readonly payloadType: string;
  readonly payload: string;
  readonly signatures: readonly { readonly keyid: string; readonly sig: string }[];
}

/** A new key, for a release that nobody else is to trust. */
export function newKey(): SigningKey {
  const { privateKey, publicKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
  return { secret: privateKey, publicPem: publicKey.export({ type: "spki", format: "pem" }) };
}

/** What cosign signs of an image or chart. @param reference without tag and digest. @param digest of its manifest or index.
 *  @see https://github.com/sigstore/cosign/blob/main/specs/SIGNATURE_SPEC.md */
export function signingPayload(reference: string, digest: string): string {
  return JSON.stringify({
    critical: {
      identity: { "docker-reference": reference },
      image: { "docker-manifest-digest": digest },
      type: "cosign container image signature",
    },
    optional: null,
  });
}

/** A signature in base64, of the SHA-256. */
export function signatureOf(bytes: Buffer | string, key: SigningKey): string {
  return sign("sha256", Buffer.from(bytes), key.secret).toString("base64");
}

/** Whether a signature is that key's of these bytes. @param publicPem PEM. */
export function isSigned(bytes: Buffer | string, signature: string, publicPem: string): boolean {
  return verify("sha256", Buffer.from(bytes), createPublicKey(publicPem), Buffer.from(signature, "base64"));
}

/** A statement of in-toto, signed. */
export function envelopeOf(statement: object, key: SigningKey): Envelope {
  const payload = Buffer.from(JSON.stringify(statement));
  const signatures = [{ keyid: "", sig: signatureOf(authenticated(statementType, payload), key) }];
  return { payloadType: statementType, payload: payload.toString("base64"), signatures };
}

/** The statement in an envelope. @throws where none of its signatures is that key's. */
export function statementIn(envelope: Envelope, publicPem: string): unknown {
  const payload = Buffer.from(envelope.payload, "base64");
  const signed = authenticated(envelope.payloadType, payload);
  if (!envelope.signatures.some(({ sig }) => isSigned(signed, sig, publicPem)))
    throw new Error("an attestation is not signed by the release's key");
  return JSON.parse(payload.toString());
}

/** What DSSE signs: the type and the payload, each with its length. */
function authenticated(type: string, payload: Buffer): Buffer {
  return Buffer.concat([Buffer.from(`DSSEv1 ${type.length} ${type} ${payload.length} `), payload]);
}
