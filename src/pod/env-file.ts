import { isUtf8 } from "node:buffer";

const blankLine = /^[ \t]*(?:#[^]*)?\r?$/;
const assignment = /^[ \t]*([^= \t][^=]*?)=/;

/** Longest line that a kubelet reads, bytes without the line feed. @see https://pkg.go.dev/bufio#pkg-constants */
const maxLineBytes = 64 * 1024 - 1;

/** The variables of an environment file. */
export type EnvFile = ReturnType<typeof parseEnvFile>;

/** A value that is not valid UTF-8 and cannot be an environment variable. */
export class NotUtf8Error extends Error {}

/** Parses an environment file of `NAME='value'` lines. Values are literal, in single quotes, and may span lines; comments may
 *  follow a value or have their own line. CR LF is read as LF, also within values. A blank after `=` means an empty value. If a
 *  name is defined twice, the first definition counts. A line longer than 65535 bytes ends the reading.
 *  @see https://kubernetes.io/docs/tasks/inject-data-application/define-environment-variable-via-file/ */
export function parseEnvFile(bytes: Buffer) {
  // As bytes, so that invalid UTF-8 in one value does not affect others.
  const values = new Map<string, string>();
  const syntaxError = readVariables(bytes.toString("latin1"), (name, value) => {
    if (!values.has(name)) values.set(name, value);
  });
  return {
    /** @returns undefined if the file does not define it. @throws Error with the line number of a syntax error before it;
     *  NotUtf8Error if the value is not UTF-8. */
    get(name: string) {
      const value = values.get(Buffer.from(name).toString("latin1"));
      if (value === undefined && syntaxError) throw syntaxError;
      if (value === undefined) return undefined;
      const found = Buffer.from(value, "latin1");
      if (!isUtf8(found)) throw new NotUtf8Error(`the value of ${name} is not UTF-8`);
      return found.toString();
    },
  };
}

/** @returns the error of the first invalid line; nothing after it is read. */
function readVariables(all: string, found: (name: string, value: string) => void): Error | undefined {
  const readable = readableLength(all);
  const text = all.slice(0, readable);
  let at = 0;
  const line = () => text.slice(0, at).split("\n").length;
  while (at < text.length) {
    const newline = text.indexOf("\n", at);
    const content = text.slice(at, newline < 0 ? undefined : newline);
    const end = at + content.length + 1;
    if (blankLine.test(content)) {
      at = end;
      continue;
    }
    const assigned = assignment.exec(content);
    if (!assigned?.[1] || /[ \t]$/.test(assigned[1])) return new Error(`line ${line()}: expected NAME='value'`);
    const from = at + assigned[0].length;
    if (/^[ \t]/.test(text.slice(from, from + 1))) {
      found(assigned[1], "");
      at = end;
      continue;
    }
    const value = /'([^']*)'[ \t]*(?:#[^\n]*)?\r?(?:\n|$)/y;
    value.lastIndex = from;
    const quoted = value.exec(text);
    if (!quoted) return new Error(`line ${line()}: the value is not enclosed in single quotes`);
    found(assigned[1], (quoted[1] ?? "").replaceAll("\r\n", "\n"));
    at = value.lastIndex;
  }
  return readable < all.length ? new Error(`line ${line()} has more than ${maxLineBytes} bytes`) : undefined;
}

/** The length of a text up to its first line that is too long. */
function readableLength(text: string): number {
  for (let at = 0; text.length - at > maxLineBytes; ) {
    const newline = text.indexOf("\n", at);
    if ((newline < 0 ? text.length : newline) - at > maxLineBytes) return at;
    at = newline + 1;
  }
  return text.length;
}
