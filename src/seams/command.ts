import { CodedError } from "../lib/errors.ts";

declare const built: unique symbol;

/** Words of a command: the program, then its arguments. Only the functions of this file make one, so that a word which somebody else wrote
 *  (a path, an address, a name) is never read as an option. */
export type Argv = readonly [program: string, ...rest: string[]] & { readonly [built]: true };

/** An option that this code writes itself, alone or with its value in the next word. A `string` from elsewhere is no `Option`. */
export type Option = `-${string}` | readonly [name: `-${string}`, value: string];

/** A program, with subcommands where it has some. */
type Program = string | readonly [string, ...string[]];

/** Builds a command whose operands follow `--`. Pure.
 *  @param operands words of any content. @see https://pubs.opengroup.org/onlinepubs/9799919799/basedefs/V1_chap12.html (guideline 10) */
export function command(program: Program, options: readonly Option[] = [], operands: readonly string[] = []): Argv {
  return argv([...words(program), ...options.flat(), ...(operands.length > 0 ? ["--", ...operands] : [])]);
}

/** Builds a command for a program that has another meaning for `--`, or none: busybox's mount reads each word with two dashes as an option,
 *  wherever it stands, and fsck hands on what follows `--`. Pure.
 *  @throws CodedError invalid_argument for an operand that begins with a dash. */
export function commandWithoutDashes(program: Program, options: readonly Option[], operands: readonly string[]): Argv {
  const option = operands.find((word) => word.startsWith("-"));
  if (option !== undefined) {
    const what = `${JSON.stringify(option)} begins with a dash, which ${words(program)[0]} takes for an option`;
    throw new CodedError("invalid_argument", `${what}: use another name`);
  }
  return argv([...words(program), ...options.flat(), ...operands]);
}

/** Builds a command that runs a script of this code's own by the target's POSIX shell. Pure. @param parameters `$1` and so on. */
export function script(text: string, ...parameters: readonly string[]): Argv {
  return argv(["sh", "-c", text, "sh", ...parameters]);
}

/** Builds a command that runs a program of this code's own by an interpreter. Pure. @param parameters its arguments. */
export function interpreted(by: "python3" | "perl", text: string, ...parameters: readonly string[]): Argv {
  // Python ends its own options with the program's text, perl does not.
  return by === "python3" ? argv([by, "-c", text, ...parameters]) : argv([by, "-e", text, "--", ...parameters]);
}

/** Builds a command that has another one run: `wrapper` ends with what tells its own options from the command, such as `--`. Pure. */
export function wrapped(wrapper: readonly [string, ...string[]], inner: Argv): Argv {
  return argv([...wrapper, ...inner]);
}

function words(program: Program): readonly [string, ...string[]] {
  return typeof program === "string" ? [program] : program;
}

function argv(all: readonly string[]): Argv {
  return all as unknown as Argv;
}
