/** Characters that move a terminal's cursor, change its state, or the order in which text is read: control characters except for the line
 *  feed, and directional overrides. */
const notShown = /[\p{Cc}\u2028\u2029\u061C\u200E\u200F\u202A-\u202E\u2066-\u2069]/gu;

/** Escapes control characters in foreign text, such as a target's or the API server's, so that it can be printed to a
 *  terminal. Line feeds stay. */
export function visibleText(text: string): string {
  return text.replace(notShown, (character) => (character === "\n" ? character : escaped(character)));
}

/** Like `visibleText`, on one line. */
export function visibleLine(text: string): string {
  return text.replace(notShown, escaped);
}

/** The same escape is valid in JSON. */
function escaped(character: string): string {
  if (character === "\n") return "\\n";
  if (character === "\t") return "\\t";
  return `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`;
}
