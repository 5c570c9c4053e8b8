const blankLine = /^[ \t]*(?:#.*)?\r?$/;
const assignment = /^[ \t]*([^=\s][^=]*?)=/;

/** The value of a variable in an environment file: lines `NAME='value'`, the value in single quotes as it stands and over as many
 *  lines as it takes, a comment after it or on a line of its own. Without quotes, after a blank, it is empty.
 *  @returns undefined when the file does not have it. @throws Error that names the line, where what comes before it is none of
 *  that. @see https://kubernetes.io/docs/tasks/inject-data-application/define-environment-variable-via-file/ */
export function envFileValue(text: string, name: string): string | undefined {
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
    if (!assigned?.[1] || /\s$/.test(assigned[1])) throw new Error(`line ${line()} is none of NAME='value'`);
    const from = at + assigned[0].length;
    if (/^[ \t]/.test(text.slice(from, from + 1))) {
      if (assigned[1] === name) return "";
      at = end;
      continue;
    }
    const value = /'([^']*)'[ \t]*(?:#[^\n]*)?\r?(?:\n|$)/y;
    value.lastIndex = from;
    const quoted = value.exec(text);
    if (!quoted) throw new Error(`the value in line ${line()} is not enclosed in single quotes`);
    if (assigned[1] === name) return quoted[1];
    at = value.lastIndex;
  }
  return undefined;
}
