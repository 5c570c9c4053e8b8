const escapes: Readonly<Record<string, string>> = {
  "\x07": "\\a",
  "\b": "\\b",
  "\f": "\\f",
  "\n": "\\n",
  "\r": "\\r",
  "\t": "\\t",
  "\v": "\\v",
  "\\": "\\\\",
  '"': '\\"',
};

/** Quotes a text like Go's strconv.Quote. @see https://pkg.go.dev/strconv#Quote */
export function goQuote(text: string): string {
  return `"${escaped(text)}"`;
}

/** Like goQuote, for bytes in a latin1 string, which need not be valid UTF-8. */
export function goQuoteBytes(bytes: string): string {
  const buffer = Buffer.from(bytes, "latin1");
  let quoted = "";
  for (let at = 0; at < buffer.length; ) {
    const [text, length] = characterAt(buffer, at);
    quoted += text === undefined ? `\\x${(buffer[at] ?? 0).toString(16).padStart(2, "0")}` : escaped(text);
    at += length;
  }
  return `"${quoted}"`;
}

/** The character at an index and its length in bytes; undefined for an invalid byte. */
function characterAt(buffer: Buffer, at: number): readonly [string | undefined, number] {
  const lead = buffer[at] ?? 0;
  const length = lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  const bytes = buffer.subarray(at, at + length);
  const text = bytes.toString("utf8");
  return Buffer.from(text, "utf8").equals(bytes) ? [text, length] : [undefined, 1];
}

function escaped(text: string): string {
  return text.replace(/["\\]|[^\p{L}\p{M}\p{N}\p{P}\p{S} ]/gu, (char) => {
    const code = char.codePointAt(0) ?? 0;
    const known = escapes[char];
    if (known) return known;
    if (code < 0x80) return `\\x${code.toString(16).padStart(2, "0")}`;
    return code < 0x10000 ? `\\u${code.toString(16).padStart(4, "0")}` : `\\U${code.toString(16).padStart(8, "0")}`;
  });
}
