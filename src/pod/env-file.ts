import { isUtf8 } from "node:buffer";

const blankLine = /^[ \t]*(?:#[^]*)?\r?$/;
const assignment = /^[ \t]*([^= \t][^=]*?)=/;

/** The variables of an environment file. */
export interface EnvFile {
  /** @returns undefined if the file does not define it. @throws Error with the line number of a syntax error before it; NotText if the
   *  value is not UTF-8. */
  get(name: string): string | undefined;
}

/** A value that is not valid UTF-8 and cannot be an environment variable. */
export class NotText extends Error {}

/** Parses an environment file of `NAME='value'` lines. Values are literal, in single quotes, and may span lines; comments may follow a
 *  value or have a line of their own. CR LF is read as LF, also within values. A blank after `=` means an empty value. The first
 *  definition of a name counts. @see https://kubernetes.io/docs/tasks/inject-data-application/define-environment-variable-via-file/ */
export function parseEnvFile(bytes: Buffer): EnvFile {
  // As bytes, so that invalid UTF-8 in one value does not affect others.
  const values = new Map<string, string>();
  const wrong = readVariables(bytes.toString("latin1"), (name, value) => {
    if (!values.has(name)) values.set(name, value);
  });
  return {
    get(name) {
      const value = values.get(Buffer.from(name).toString("latin1"));
      if (value === undefined && wrong) throw wrong;
      if (value === undefined) return undefined;
      const found = Buffer.from(value, "latin1");
      if (!isUtf8(found)) throw new NotText(`the value of ${name} is not UTF-8`);
      return found.toString();
    },
  };
}

/** @returns the error of the first invalid line; nothing after it is read. */
function readVariables(text: string, found: (name: string, value: string) => void): Error | undefined {
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
  return undefined;
}
