/** The longest expression in one argument, in bytes: the kernel takes 128 KiB an argument. */
const longest = 60_000;

/** Regular expressions that together match the named tests and no others, for ginkgo's --focus: it holds them against the suite's
 *  description, a blank and the test's full name. @see https://onsi.github.io/ginkgo/#description-based-filtering */
export function focusOn(description: string, names: readonly string[]): readonly string[] {
  const chunks: string[][] = [];
  let length = longest;
  for (const name of names.map(literal)) {
    const bytes = Buffer.byteLength(name) + 1;
    if (length + bytes > longest) {
      chunks.push([]);
      length = 0;
    }
    chunks.at(-1)?.push(name);
    length += bytes;
  }
  return chunks.map((chunk) => `^${literal(description)} (?:${chunk.join("|")})$`);
}

/** The text as a regular expression of Go's that matches nothing else. @see https://pkg.go.dev/regexp#QuoteMeta */
function literal(text: string): string {
  return text.replaceAll(/[\\.+*?()|[\]{}^$]/g, "\\$&");
}
