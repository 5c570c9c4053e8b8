import { type KeyObject, generateKeyPairSync, sign } from "node:crypto";
import { certificateName } from "../../providers/ssh/connection/key-algorithms.ts";
import { wireString } from "../../providers/ssh/connection/wire-reader.ts";

/** A key in SSH's wire format, and its signatures. */
export interface SshKey {
  readonly type: string;
  /** What its type is followed by. */
  readonly fields: Buffer;
  readonly wire: Buffer;
  readonly privateKey: KeyObject;
  /** @param algorithm for RSA; `ssh-rsa` is SHA-1. */
  sign(data: Buffer, algorithm?: string): Buffer;
}

const curves = { "P-256": "sha256", "P-384": "sha384", "P-521": "sha512" } as const;

/** A new key. */
export function sshKey(kind: "ed25519" | "rsa" | keyof typeof curves): SshKey {
  if (kind === "ed25519") {
    const { privateKey, part } = pairOf(generateKeyPairSync("ed25519"));
    return keyOf("ssh-ed25519", privateKey, [part("x")], (data) => [sign(null, data, privateKey)]);
  }
  if (kind === "rsa") {
    const { privateKey, part } = pairOf(generateKeyPairSync("rsa", { modulusLength: 2048 }));
    const digests: Readonly<Record<string, string>> = { "rsa-sha2-256": "sha256", "ssh-rsa": "sha1" };
    return keyOf("ssh-rsa", privateKey, [mpint(part("e")), mpint(part("n"))], (data, algorithm = "rsa-sha2-512") => [
      sign(digests[algorithm] ?? "sha512", data, privateKey),
      algorithm,
    ]);
  }
  const { privateKey, part } = pairOf(generateKeyPairSync("ec", { namedCurve: kind }));
  const curve = `nistp${kind.slice(2)}`;
  const point = Buffer.concat([Buffer.from([4]), part("x"), part("y")]);
  return keyOf(`ecdsa-sha2-${curve}`, privateKey, [Buffer.from(curve), point], (data) => {
    const both = sign(curves[kind], data, { key: privateKey, dsaEncoding: "ieee-p1363" });
    const halves = [both.subarray(0, both.length / 2), both.subarray(both.length / 2)];
    return [Buffer.concat(halves.map((half) => wireString(mpint(half))))];
  });
}

function pairOf({ publicKey, privateKey }: { publicKey: KeyObject; privateKey: KeyObject }) {
  const jwk = publicKey.export({ format: "jwk" });
  return { privateKey, part: (name: "x" | "y" | "e" | "n") => Buffer.from(jwk[name] ?? "", "base64url") };
}

function keyOf(
  type: string,
  privateKey: KeyObject,
  fields: readonly Buffer[],
  signed: (data: Buffer, algorithm?: string) => readonly [value: Buffer, algorithm?: string],
): SshKey {
  const body = Buffer.concat(fields.map((field) => wireString(field)));
  return {
    type,
    fields: body,
    privateKey,
    wire: Buffer.concat([wireString(type), body]),
    sign(data, wanted) {
      const [value, algorithm = type] = signed(data, wanted);
      return Buffer.concat([wireString(algorithm), wireString(value)]);
    },
  };
}

/** @see RFC 4251 §5, positive numbers alone */
function mpint(bytes: Buffer): Buffer {
  const digits = bytes.subarray(
    Math.max(
      0,
      bytes.findIndex((byte) => byte !== 0),
    ),
  );
  return (digits[0] ?? 0) > 127 ? Buffer.concat([Buffer.from([0]), digits]) : digits;
}

/** What a certificate says. */
export interface CertificateOptions {
  readonly type?: "user" | "host" | "neither";
  readonly principals?: readonly string[];
  /** Seconds since the epoch. */
  readonly after?: bigint;
  readonly before?: bigint;
  readonly critical?: readonly string[];
  /** Of the authority's signature. */
  readonly algorithm?: string;
}

const types = { user: 1, host: 2, neither: 3 };
export const forever = 2n ** 64n - 1n;

/** A certificate in SSH's wire format; by default a host's, for `h.example`, for ever.
 *  @see https://cvsweb.openbsd.org/src/usr.bin/ssh/PROTOCOL.certkeys */
export function certificateOf(key: SshKey, authority: SshKey, options: CertificateOptions = {}): Buffer {
  const { type = "host", principals = ["h.example"], after = 0n, before = forever, critical = [], algorithm } = options;
  const numbers = Buffer.alloc(12);
  numbers.writeUInt32BE(types[type], 8);
  const validity = Buffer.alloc(16);
  validity.writeBigUInt64BE(after, 0);
  validity.writeBigUInt64BE(before, 8);
  const signed = Buffer.concat([
    wireString(certificateName(key.type)),
    wireString("a nonce"),
    key.fields,
    numbers,
    wireString("an id"),
    wireString(Buffer.concat(principals.map((name) => wireString(name)))),
    validity,
    wireString(Buffer.concat(critical.flatMap((name) => [wireString(name), wireString(wireString("its value"))]))),
    wireString(Buffer.concat([wireString("permit-pty"), wireString("")])),
    wireString(""),
    wireString(authority.wire),
  ]);
  return Buffer.concat([signed, wireString(authority.sign(signed, algorithm))]);
}
