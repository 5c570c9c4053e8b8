/** Bytes of the longest string that Linux hands to a process (MAX_ARG_STRLEN). @see execve(2) */
const maxStringBytes = 128 * 1024;
/** Bytes of all strings together that Linux hands to a process, as its stack is limited by default. @see execve(2) */
const maxSumBytes = 2 * 1024 * 1024;

/** Replaces `$(NAME)` by the variable's value. What no variable is named stays as it is; `$$` stands for `$`, so that
 *  `$$(NAME)` is the literal `$(NAME)`. Takes time by the lengths of the text and of what comes of it.
 *  @param valueOf undefined for an unknown name. @param what the result is, for the error.
 *  @throws Error before the result is made, where it would be longer than a process can be given.
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

/** Counts what one process is started with. */
export interface StringSum {
  /** @param what the string is, for the error.
   *  @throws Error where it is longer than a process can be given, or all of them together are. */
  add(what: string, ...parts: readonly string[]): void;
}

/** A sum of nothing. What replaces another string counts beside it: the sum bounds the work, too.
 *  @param whose strings these are, for the error. */
export function createStringSum(whose = "environment, command and args of the container"): StringSum {
  let sum = 0;
  return {
    add(what, ...parts) {
      const lengths = parts.map((part) => Buffer.byteLength(part));
      if (lengths.some((length) => length > maxStringBytes)) throw tooLong(what);
      // Each ends with a NUL; a variable has its "=".
      sum += lengths.reduce((all, length) => all + length + 1, 0);
      if (sum > maxSumBytes)
        throw new Error(
          `${whose} are longer than ${maxSumBytes} bytes together: shorten them, or put what is large into files`,
        );
    },
  };
}

function tooLong(what: string): Error {
  return new Error(`${what} is longer than ${maxStringBytes} bytes: shorten it, or put what is large into a file`);
}

/** A variable's name in errors, shortened: names have no length limit. */
export function variableCalled(name: string): string {
  return `environment variable ${JSON.stringify(name.slice(0, 100))}`;
}
