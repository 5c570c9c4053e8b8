const blankLine = /^[ \t]*(?:#.*)?\r?$/;
const assignment = /^[ \t]*([^=\s][^=]*?)=/;

/** The variables of an environment file. */
export interface EnvFile {
  /** @returns undefined when the file does not have it. @throws Error that names the line, where what comes before it is not right. */
  get(name: string): string | undefined;
}

/** Reads an environment file, once: lines `NAME='value'`, the value in single quotes as it stands and over as many lines as it
 *  takes, a comment after it or on a line of its own. Without quotes, after a blank, it is empty. Of a name that comes twice the
 *  first counts. @see https://kubernetes.io/docs/tasks/inject-data-application/define-environment-variable-via-file/ */
export function parseEnvFile(text: string): EnvFile {
  const values = new Map<string, string>();
  const wrong = readVariables(text, (name, value) => {
    if (!values.has(name)) values.set(name, value);
  });
  return {
    get(name) {
      const value = values.get(name);
      if (value === undefined && wrong) throw wrong;
      return value;
    },
  };
}

/** @returns what is wrong with the first line that is none of these: nothing after it is read. */
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
    if (!assigned?.[1] || /\s$/.test(assigned[1])) return new Error(`line ${line()} is none of NAME='value'`);
    const from = at + assigned[0].length;
    if (/^[ \t]/.test(text.slice(from, from + 1))) {
      found(assigned[1], "");
      at = end;
      continue;
    }
    const value = /'([^']*)'[ \t]*(?:#[^\n]*)?\r?(?:\n|$)/y;
    value.lastIndex = from;
    const quoted = value.exec(text);
    if (!quoted) return new Error(`the value in line ${line()} is not enclosed in single quotes`);
    found(assigned[1], quoted[1] ?? "");
    at = value.lastIndex;
  }
  return undefined;
}
