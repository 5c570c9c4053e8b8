import { createPublicKey, verify } from "node:crypto";
import ssh2 from "ssh2";
import { signatureAlgorithms } from "./key-algorithms.ts";
import { WireReader } from "./wire-reader.ts";

/** Digest, and length of each ECDSA integer, by algorithm. Ed25519 has its digest built in. */
const digests: ReadonlyMap<string, readonly [digest: string | null, halfBytes: number]> = new Map([
  ["ssh-ed25519", [null, 0]],
  ["ecdsa-sha2-nistp256", ["sha256", 32]],
  ["ecdsa-sha2-nistp384", ["sha384", 48]],
  ["ecdsa-sha2-nistp521", ["sha512", 66]],
  ["rsa-sha2-512", ["sha512", 0]],
  ["rsa-sha2-256", ["sha256", 0]],
]);

/** True for a valid signature of the data by the key, with an algorithm allowed for the key's type. Never throws.
 *  @param key in SSH's wire format. @param signature in SSH's wire format.
 *  @see RFC 4253 §6.6, RFC 5656 §3.1.2, RFC 8332 §3, RFC 8709 §6 */
export function isSignatureOf(key: Buffer, data: Buffer, signature: Buffer): boolean {
  try {
    const keyType = new WireReader(key).text();
    const reader = new WireReader(signature);
    const algorithm = reader.text();
    const value = reader.string();
    const [digest, halfBytes] = digests.get(algorithm) ?? [null, 0];
    if (!reader.atEnd || signatureAlgorithms.get(keyType)?.includes(algorithm) !== true) return false;
    const parsed = ssh2.utils.parseKey(key);
    if (parsed instanceof Error) return false;
    const pem = { key: createPublicKey(parsed.getPublicPEM()), dsaEncoding: "ieee-p1363" } as const;
    return verify(digest, data, pem, halfBytes > 0 ? padIntegers(value, halfBytes) : value);
  } catch {
    // Malformed input is not a valid signature.
    return false;
  }
}

/** Pads ECDSA's two integers to their full length. @throws RangeError when one is longer. */
function padIntegers(value: Buffer, bytes: number): Buffer {
  const reader = new WireReader(value);
  const padded = [reader.string(), reader.string()].map((number) => {
    const digits = number.subarray(number.findIndex((byte) => byte !== 0));
    if (digits.length > bytes) throw new RangeError("a number of the signature is too long");
    return Buffer.concat([Buffer.alloc(bytes - digits.length), digits]);
  });
  if (!reader.atEnd) throw new RangeError("something follows the signature");
  return Buffer.concat(padded);
}
