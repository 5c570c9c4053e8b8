const blank = "[ \\t]*";

/** The value of a variable in an environment file: lines `NAME='value'`, the value in single quotes as it stands and over as many
 *  lines as it takes, a comment after it or on a line of its own. Without quotes, after a blank, it is empty.
 *  @returns undefined when the file does not have it. @throws Error that names the line, where what comes before it is none of
 *  that. @see https://kubernetes.io/docs/tasks/inject-data-application/define-environment-variable-via-file/ */
export function envFileValue(text: string, name: string): string | undefined {
  let at = 0;
  while (at < text.length) {
    const line = /[^\n]*/y;
    line.lastIndex = at;
    const content = line.exec(text)?.[0] ?? "";
    const number = text.slice(0, at).split("\n").length;
    const end = at + content.length + 1;
    if (new RegExp(`^${blank}(?:#.*)?\\r?$`).test(content)) {
      at = end;
      continue;
    }
    const assigned = new RegExp(`^${blank}([^=\\s][^=]*?)=`).exec(content);
    if (!assigned?.[1] || /\s$/.test(assigned[1])) throw new Error(`line ${number} is none of NAME='value'`);
    const from = at + assigned[0].length;
    if (/^[ \t]/.test(text.slice(from, from + 1))) {
      if (assigned[1] === name) return "";
      at = end;
      continue;
    }
    const value = /'([^']*)'[ \t]*(?:#[^\n]*)?\r?(?:\n|$)/y;
    value.lastIndex = from;
    const found = value.exec(text);
    if (!found) throw new Error(`the value in line ${number} is not enclosed in single quotes`);
    if (assigned[1] === name) return found[1];
    at = value.lastIndex;
  }
  return undefined;
}
