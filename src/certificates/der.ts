import { CodedError } from "../lib/errors.ts";

/** One DER element. */
export interface Element {
  /** Its tag: the first byte. */
  readonly tag: number;
  readonly content: Buffer;
}

/** Parses consecutive elements. Strict, so that no other parser reads the same bytes differently: lengths in their shortest form, below
 *  64 KiB, and nothing left over. @throws CodedError invalid_argument.
 *  @see ITU-T X.690, 10 */
export function elementsOf(bytes: Buffer): readonly Element[] {
  const found: Element[] = [];
  for (let at = 0; at < bytes.length; ) {
    const tag = bytes[at] ?? 0;
    if ((tag & 0x1f) === 0x1f) throw malformed("a tag of more than one byte");
    const { length, size } = lengthAt(bytes, at + 1);
    const from = at + 1 + size;
    if (from + length > bytes.length) throw malformed("an element beyond the end");
    found.push({ tag, content: bytes.subarray(from, from + length) });
    at = from + length;
  }
  return found;
}

/** Parses the elements within one, which must have exactly these tags. @throws CodedError invalid_argument */
export function elementsIn<Tags extends readonly number[]>(
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

/** @param what the request's part, for the message. */
export function malformed(what: string): CodedError {
  return new CodedError("invalid_argument", `the request has ${what}`);
}
