import { plainName, signatureAlgorithms } from "./key-algorithms.ts";
import { WireReader, wireString } from "./wire-reader.ts";

/** A parsed OpenSSH certificate, not yet verified. */
export interface Certificate {
  readonly type: "user" | "host";
  /** Type of the certified key, such as `ssh-rsa`. */
  readonly keyType: string;
  /** The certified key in SSH's wire format. */
  readonly key: Buffer;
  /** Names of the users or hosts that the certificate is valid for. */
  readonly principals: readonly string[];
  /** Validity period, seconds since the epoch; `validBefore` is exclusive. */
  readonly validAfter: bigint;
  readonly validBefore: bigint;
  /** Names of critical options: an implementation that does not know one has to refuse the certificate. */
  readonly criticalOptions: readonly string[];
  /** The authority's key, in SSH's wire format. */
  readonly authority: Buffer;
  /** The bytes that the authority signed; `signature` is over these bytes. */
  readonly signed: Buffer;
  readonly signature: Buffer;
}

/** Number of wire-format fields of a key of this type. */
const keyFieldCount = (type: string): number => (type === "ssh-ed25519" ? 1 : 2);

/** Reads a certificate in SSH's wire format. Pure.
 *  @throws Error, a clause that says what is wrong with the certificate.
 *  @see https://cvsweb.openbsd.org/src/usr.bin/ssh/PROTOCOL.certkeys */
export function parseCertificate(blob: Buffer): Certificate {
  const reader = new WireReader(blob);
  const name = reader.text();
  const keyType = plainName(name);
  if (keyType === undefined || !signatureAlgorithms.has(keyType))
    throw new Error(`unsupported type ${JSON.stringify(name.slice(0, 60))}`);
  reader.string(); // The nonce.
  const start = reader.position;
  for (let field = 0; field < keyFieldCount(keyType); field += 1) reader.string();
  const key = Buffer.concat([wireString(keyType), blob.subarray(start, reader.position)]);
  reader.uint64(); // The serial number.
  const use = reader.uint32();
  if (use !== 1 && use !== 2) throw new Error(`neither a user nor a host certificate (${use})`);
  reader.string(); // The key's id.
  const principals = readList(reader.string(), (list) => list.text());
  const validAfter = reader.uint64();
  const validBefore = reader.uint64();
  const criticalOptions = readList(reader.string(), readOptionName);
  reader.string(); // Extensions; unknown ones are ignored.
  reader.string(); // Reserved.
  const authority = reader.string();
  const signed = blob.subarray(0, reader.position);
  const signature = reader.string();
  if (!reader.atEnd) throw new Error("trailing bytes");
  return {
    type: use === 1 ? "user" : "host",
    keyType,
    key,
    principals,
    validAfter,
    validBefore,
    criticalOptions,
    authority,
    signed,
    signature,
  };
}

function readList(bytes: Buffer, read: (list: WireReader) => string): readonly string[] {
  const list = new WireReader(bytes);
  const items: string[] = [];
  while (!list.atEnd) items.push(read(list));
  return items;
}

function readOptionName(list: WireReader): string {
  const name = list.text();
  list.string(); // Its value.
  return name;
}

/** Checks a certificate's validity period. @param now milliseconds since the epoch. */
export function validity({ validAfter, validBefore }: Certificate, now: number): "valid" | "early" | "expired" {
  const seconds = BigInt(Math.floor(now / 1000));
  if (seconds < validAfter) return "early";
  return seconds < validBefore ? "valid" : "expired";
}

/** Formats a certificate's time for messages. @param seconds since the epoch. */
export function formatDate(seconds: bigint): string {
  const latestMs = 8.64e15;
  return new Date(Math.min(Number(seconds) * 1000, latestMs)).toISOString();
}
