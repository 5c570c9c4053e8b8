/** The UTF-8 bytes of a text as a latin1 string, for data that is validated and sent byte by byte. */
export function toLatin1Bytes(text: string): string {
  return Buffer.from(text, "utf8").toString("latin1");
}

/** Decodes UTF-8 bytes held in a latin1 string; invalid bytes become U+FFFD. */
export function fromLatin1Bytes(bytes: string): string {
  return Buffer.from(bytes, "latin1").toString("utf8");
}
