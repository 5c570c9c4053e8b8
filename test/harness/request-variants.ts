import { generateKeyPairSync, sign, type KeyObject } from "node:crypto";

/** A relative distinguished name: an attribute's object identifier in DER, a value, and the tag that it is written with. */
export interface NamePart {
  readonly oid: readonly number[];
  readonly value: string;
  readonly tag?: number;
}

export const organization = [0x55, 0x04, 0x0a];
export const commonName = [0x55, 0x04, 0x03];
export const organizationalUnit = [0x55, 0x04, 0x0b];
/** Attributes of a request: one of extensions, of which one has alternative names. */
export const asksForExtensions = [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x09, 0x0e];
export const alternativeNames = [0x55, 0x1d, 0x11];
export const printable = 0x13;
export const utf8 = 0x0c;

export type KeyKind = "p256" | "rsa" | "ed25519";

const algorithms: Readonly<Record<KeyKind, readonly number[]>> = {
  p256: [0x30, 0x0a, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02],
  rsa: [0x30, 0x0d, 0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0b, 0x05, 0x00],
  ed25519: [0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70],
};

/** An extension that a request asks for: its object identifier, and a name in each element: its tag and its bytes. */
export interface WantedExtension {
  readonly oid: readonly number[];
  readonly names: readonly (readonly [tag: number, content: readonly number[] | string])[];
}

/** Parts of a request that can be otherwise. */
export interface RequestVariant {
  readonly key?: KeyKind;
  /** 0 unless given, as the content of an INTEGER. */
  readonly version?: readonly number[];
  /** A list for each attribute. */
  readonly extensions?: readonly (readonly WantedExtension[])[];
  /** Of the attributes. */
  readonly attribute?: readonly number[];
}

/** A PKCS #10 request that is signed, made by hand so that each part can be wrong, in DER.
 *  @param name sets of parts, in their order. */
export function requestDer(
  name: readonly (readonly NamePart[])[],
  { key = "p256", version = [0], extensions = [], attribute = asksForExtensions }: RequestVariant = {},
): Buffer {
  const { publicKey, privateKey } = keyPair(key);
  const subject = element(
    0x30,
    name.map((parts) => element(0x31, parts.map(partDer))),
  );
  const info = element(0x30, [
    element(0x02, [Buffer.from(version)]),
    subject,
    publicKey.export({ type: "spki", format: "der" }),
    element(
      0xa0,
      extensions.map((wanted) =>
        element(0x30, [oid(attribute), element(0x31, [element(0x30, wanted.map(extensionDer))])]),
      ),
    ),
  ]);
  const signature = sign(key === "ed25519" ? null : "sha256", info, privateKey);
  return element(0x30, [info, Buffer.from(algorithms[key]), element(0x03, [Buffer.from([0]), signature])]);
}

/** DER as a block of PEM. @param width characters a line. */
export function pemOf(der: Buffer, width = 64): string {
  const lines = der.toString("base64").match(new RegExp(`.{1,${width}}`, "g")) ?? [];
  return `-----BEGIN CERTIFICATE REQUEST-----\n${lines.join("\n")}\n-----END CERTIFICATE REQUEST-----\n`;
}

function extensionDer({ oid: kind, names }: WantedExtension): Buffer {
  const content = names.map(([tag, name]) =>
    element(tag, [typeof name === "string" ? Buffer.from(name) : Buffer.from(name)]),
  );
  return element(0x30, [oid(kind), element(0x04, [element(0x30, content)])]);
}

function oid(bytes: readonly number[]): Buffer {
  return element(0x06, [Buffer.from(bytes)]);
}

function partDer({ oid: kind, value, tag = printable }: NamePart): Buffer {
  return element(0x30, [oid(kind), element(tag, [Buffer.from(value)])]);
}

function element(tag: number, content: readonly Buffer[]): Buffer {
  const body = Buffer.concat(content);
  const length =
    body.length < 128
      ? [body.length]
      : body.length < 256
        ? [0x81, body.length]
        : [0x82, body.length >> 8, body.length & 255];
  return Buffer.concat([Buffer.from([tag, ...length]), body]);
}

function keyPair(kind: KeyKind): { readonly publicKey: KeyObject; readonly privateKey: KeyObject } {
  if (kind === "rsa") return generateKeyPairSync("rsa", { modulusLength: 2048 });
  if (kind === "ed25519") return generateKeyPairSync("ed25519");
  return generateKeyPairSync("ec", { namedCurve: "P-256" });
}
