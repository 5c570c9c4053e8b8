import { isIPv6 } from "node:net";
import type { Subject } from "./signing-request.ts";
import { CodedError } from "../lib/errors.ts";

const tags = {
  integer: 0x02,
  bits: 0x03,
  octets: 0x04,
  oid: 0x06,
  utf8: 0x0c,
  printable: 0x13,
  sequence: 0x30,
  set: 0x31,
  dnsName: 0x82,
  ipAddress: 0x87,
  attributes: 0xa0,
} as const;
const oids = {
  organization: "55040a",
  commonName: "550403",
  extensionRequest: "2a864886f70d01090e",
  alternativeNames: "551d11",
} as const;
/** Maximum size of a request in characters of PEM; graftlet's own requests are far smaller. */
const maxLength = 16_384;

/** Parses the subject of a PKCS #10 request. Only the form that graftlet writes is accepted: a single PEM block; an organization and a
 *  common name; at most one extension, that of alternative names, with DNS names and IP addresses (IPv6 in its short form). A signer
 *  therefore finds nothing else in the request. @param pem as `signingRequest` returns it. @throws CodedError invalid_argument for any
 *  other form.
 *  @see RFC 2986 */
export function requestedSubject(pem: string): Subject {
  const { sequence, set } = tags;
  const [request] = elementsIn({ content: derOf(pem) }, sequence);
  const [info] = elementsIn(request, sequence, sequence, tags.bits);
  const [version, subject, , attributes] = elementsIn(info, tags.integer, sequence, sequence, tags.attributes);
  if (version.content.toString("hex") !== "00") throw malformed("an unsupported version");
  const [organization, commonName] = elementsIn(subject, set, set);
  return {
    organization: attributeText(organization, oids.organization),
    commonName: attributeText(commonName, oids.commonName),
    names: alternativeNamesIn(attributes),
  };
}

function derOf(pem: string): Buffer {
  const block = /^-----BEGIN CERTIFICATE REQUEST-----\n([\w+/=\n]+)\n-----END CERTIFICATE REQUEST-----\n*$/;
  const base64 = pem.length > maxLength ? "" : (block.exec(pem)?.[1] ?? "").replaceAll("\n", "");
  const der = Buffer.from(base64, "base64");
  if (base64 === "" || der.toString("base64") !== base64) throw malformed("no single valid PEM block");
  return der;
}

/** The text of a set that contains one attribute. */
function attributeText(names: Element, oid: string): string {
  const [attribute] = elementsIn(names, tags.sequence);
  const [type, value, ...more] = elementsOf(attribute.content);
  const isText = value?.tag === tags.printable || value?.tag === tags.utf8;
  if (!type || !isText || more.length > 0 || !is(type, oid)) throw malformed("unexpected subject attributes");
  return value.content.toString("utf8");
}

function alternativeNamesIn(attributes: Element): readonly string[] {
  const { sequence, oid } = tags;
  if (attributes.content.length === 0) return [];
  const [attribute] = elementsIn(attributes, sequence);
  const [kind, values] = elementsIn(attribute, oid, tags.set);
  if (!is(kind, oids.extensionRequest)) throw malformed("attributes other than extensions");
  const [extensions] = elementsIn(values, sequence);
  const [extension] = elementsIn(extensions, sequence);
  const [type, value] = elementsIn(extension, oid, tags.octets);
  if (!is(type, oids.alternativeNames)) throw malformed("extensions other than alternative names");
  const [names] = elementsIn(value, sequence);
  return elementsOf(names.content).map(alternativeName);
}

/** @see RFC 5280, 4.2.1.6 */
function alternativeName({ tag, content }: Element): string {
  if (tag === tags.dnsName) return content.toString("latin1");
  if (tag === tags.ipAddress && content.length === 4) return content.join(".");
  if (tag !== tags.ipAddress || content.length !== 16)
    throw malformed("names that are neither DNS names nor IP addresses");
  return canonicalAddress((content.toString("hex").match(/.{4}/g) ?? []).join(":"));
}

/** The canonical form of an IP address. */
export function canonicalAddress(address: string): string {
  return isIPv6(address) ? new URL(`http://[${address}]`).hostname.slice(1, -1) : address;
}

function is({ tag, content }: Element, oid: string): boolean {
  return tag === tags.oid && content.toString("hex") === oid;
}

interface Element {
  /** Tag of the element: its first byte. */
  readonly tag: number;
  readonly content: Buffer;
}

/** Parses consecutive elements. Strict, so that no other parser reads the same bytes differently: lengths in their shortest form, below
 *  64 KiB, and nothing left over. @throws CodedError invalid_argument.
 *  @see ITU-T X.690, 10 */
function elementsOf(bytes: Buffer): readonly Element[] {
  const found: Element[] = [];
  for (let at = 0; at < bytes.length; ) {
    const tag = bytes[at] ?? 0;
    if ((tag & 0x1f) === 0x1f) throw malformed("a tag of more than one byte");
    const { length, size } = lengthAt(bytes, at + 1);
    const from = at + 1 + size;
    if (from + length > bytes.length) throw malformed("an element that extends beyond the end");
    found.push({ tag, content: bytes.subarray(from, from + length) });
    at = from + length;
  }
  return found;
}

/** Parses the elements within one, which must have exactly these tags. @throws CodedError invalid_argument */
function elementsIn<Tags extends readonly number[]>(
  { content }: Pick<Element, "content">,
  ...tags: Tags
): { readonly [Place in keyof Tags]: Element } {
  const parts = elementsOf(content);
  if (parts.length !== tags.length || parts.some(({ tag }, index) => tag !== tags[index]))
    throw malformed("unexpected elements");
  return parts as { readonly [Place in keyof Tags]: Element };
}

function lengthAt(bytes: Buffer, at: number): { readonly length: number; readonly size: number } {
  const [first = 0x80, second = 0, third = 0] = bytes.subarray(at, at + 3);
  if (first < 0x80) return { length: first, size: 1 };
  if (first === 0x81 && second >= 0x80) return { length: second, size: 2 };
  if (first === 0x82 && second > 0) return { length: second * 256 + third, size: 3 };
  throw malformed("a length that is not minimally encoded");
}

/** Error for a malformed request. @param what the malformed part. */
function malformed(what: string): CodedError {
  return new CodedError("invalid_argument", `the request has ${what}`);
}
