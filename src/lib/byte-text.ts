/** The UTF-8 bytes of a text, one a character (latin1): for what is judged and sent byte by byte. */
export function bytesOf(text: string): string {
  return Buffer.from(text, "utf8").toString("latin1");
}

/** The text of UTF-8 bytes that are one a character; what is no UTF-8 becomes U+FFFD. */
export function textOf(bytes: string): string {
  return Buffer.from(bytes, "latin1").toString("utf8");
}
