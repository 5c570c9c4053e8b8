/** Maximum bytes of one argument or variable of a Linux process (MAX_ARG_STRLEN). @see execve(2) */
const maxStringBytes = 128 * 1024;
/** Maximum total bytes of a Linux process's arguments and environment, with the default stack limit. @see execve(2) */
const maxTotalBytes = 2 * 1024 * 1024;

/** Replaces `$(NAME)` by the variable's value. Unknown names stay as they are; `$$` is an escaped `$`, so that `$$(NAME)` becomes
 *  the literal `$(NAME)`. Takes linear time in the lengths of text and result.
 *  @param valueOf undefined for an unknown name. @param what name of the result, for the error.
 *  @throws Error before the result is built if it would exceed the size limit of a process argument.
 *  @see https://kubernetes.io/docs/tasks/inject-data-application/define-interdependent-environment-variables/ */
export function expand(text: string, valueOf: (name: string) => string | undefined, what: string): string {
  const parts: string[] = [];
  let bytes = 0;
  const add = (part: string) => {
    bytes += Buffer.byteLength(part);
    if (bytes > maxStringBytes) throw tooLong(what);
    parts.push(part);
  };
  const lastEnd = text.lastIndexOf(")");
  let from = 0;
  for (let at = text.indexOf("$"); at >= 0; at = text.indexOf("$", from)) {
    add(text.slice(from, at));
    const isName = text[at + 1] === "(" && lastEnd > at;
    const end = isName ? text.indexOf(")", at) : text[at + 1] === "$" ? at + 1 : at;
    add(isName ? (valueOf(text.slice(at + 2, end)) ?? text.slice(at, end + 1)) : "$");
    from = end + 1;
  }
  add(text.slice(from));
  return parts.join("");
}

/** Adds up the sizes of a process's arguments and environment. Starts at zero. Overridden strings count, too: the total also bounds the
 *  work.
 *  @param strings name of the strings, for the error. */
export function createArgumentSizes(strings = "environment, command and args of the container") {
  let sum = 0;
  return {
    /** @param what name of the string, for the error.
     *  @throws Error if the string, or the total, exceeds the limit. */
    add(what: string, ...parts: readonly string[]) {
      const lengths = parts.map((part) => Buffer.byteLength(part));
      if (lengths.some((length) => length > maxStringBytes)) throw tooLong(what);
      // Each ends with a NUL; a variable also has a "=".
      sum += lengths.reduce((all, length) => all + length + 1, 0);
      if (sum > maxTotalBytes)
        throw new Error(
          `${strings} exceed ${maxTotalBytes} bytes in total: shorten them, or move large values to files`,
        );
    },
  };
}

function tooLong(what: string): Error {
  return new Error(`${what} is longer than ${maxStringBytes} bytes: shorten it, or move the large value to a file`);
}

/** A variable's name in errors, shortened: names have no length limit. */
export function variableLabel(name: string): string {
  return `environment variable ${JSON.stringify(name.slice(0, 100))}`;
}
