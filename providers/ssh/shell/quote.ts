import { CodedError } from "../../../src/lib/errors.ts";

/** Quotes a word as one argument for a POSIX shell. All external text in command lines has to pass through this function.
 *  @throws invalid_argument for a NUL, which arguments cannot contain.
 *  @see https://pubs.opengroup.org/onlinepubs/9799919799/utilities/V3_chap02.html#tag_19_02_02 */
export function quote(word: string): string {
  if (word.includes("\0")) throw new CodedError("invalid_argument", "a command's argument must not contain a NUL");
  return `'${word.replaceAll("'", `'\\''`)}'`;
}

/** Returns a command line that runs `argv`, every word quoted. */
export function quoteAll(argv: readonly string[]): string {
  return argv.map(quote).join(" ");
}

/** Encodes any bytes as a quoted format for printf: `printf FORMAT` prints exactly these bytes. Bytes beyond printable ASCII are in octal,
 *  which neither the shell's locale nor its line parsing can alter. */
export function printfFormat(data: Uint8Array | string): string {
  const bytes = typeof data === "string" ? Buffer.from(data, "utf8") : data;
  const parts: string[] = [];
  for (const byte of bytes) parts.push(formatOf[byte] ?? "");
  // A leading dash would be parsed as an option.
  if (parts[0] === "-") parts[0] = "\\055";
  return `'${parts.join("")}'`;
}

const formatOf: readonly string[] = Array.from({ length: 256 }, (_, byte) => {
  const char = String.fromCharCode(byte);
  if (char === "%") return "%%";
  if (char === "\\") return "\\\\";
  if (char === "\n" || (/^[ -~]$/.test(char) && char !== "'")) return char;
  return `\\${byte.toString(8).padStart(3, "0")}`;
});
