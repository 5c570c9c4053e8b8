import { CodedError } from "../lib/errors.ts";

declare const built: unique symbol;

/** A command line: the program, then its arguments. Only the functions of this file can build one, so external input (a path, an address,
 *  a name) is never parsed as an option. */
export type Argv = readonly [program: string, ...rest: string[]] & { readonly [built]: true };

/** A literal option, optionally with its value as the next word. The type rejects arbitrary strings. */
export type Option = `-${string}` | readonly [name: `-${string}`, value: string];

/** A program, optionally followed by subcommands. */
type Program = string | readonly [string, ...string[]];

/** Builds a command whose operands follow `--`. Pure.
 *  @param operands arbitrary words. @see https://pubs.opengroup.org/onlinepubs/9799919799/basedefs/V1_chap12.html (guideline 10) */
export function command(program: Program, options: readonly Option[] = [], operands: readonly string[] = []): Argv {
  return argv([...words(program), ...options.flat(), ...(operands.length > 0 ? ["--", ...operands] : [])]);
}

/** Builds a command for a program that does not treat `--` as the end of options: busybox's mount parses every word with two dashes as an
 *  option, and fsck passes everything after `--` on to the file-system checker. Pure.
 *  @throws CodedError invalid_argument for an operand that begins with a dash. */
export function commandWithoutDashes(program: Program, options: readonly Option[], operands: readonly string[]): Argv {
  const option = operands.find((word) => word.startsWith("-"));
  if (option !== undefined) {
    const what = `${JSON.stringify(option)} begins with a dash, which ${words(program)[0]} would parse as an option`;
    throw new CodedError("invalid_argument", `${what}: use another name`);
  }
  return argv([...words(program), ...options.flat(), ...operands]);
}

/** Builds a command that runs one of our own scripts in the target's POSIX shell. Pure. @param parameters `$1` and so on. */
export function script(text: string, ...parameters: readonly string[]): Argv {
  return argv(["sh", "-c", text, "sh", ...parameters]);
}

/** Builds a command that runs one of our own programs in an interpreter. Pure. @param parameters the program's arguments. */
export function interpreted(by: "python3" | "perl", text: string, ...parameters: readonly string[]): Argv {
  // Python stops parsing its own options after the program text; perl does not.
  return by === "python3" ? argv([by, "-c", text, ...parameters]) : argv([by, "-e", text, "--", ...parameters]);
}

/** Builds a command that runs another one, such as `nsenter … -- COMMAND`. Pure.
 *  @param wrapper has to end with the separator between its own options and the command, such as `--`. */
export function wrapped(wrapper: readonly [string, ...string[]], inner: Argv): Argv {
  return argv([...wrapper, ...inner]);
}

function words(program: Program): readonly [string, ...string[]] {
  return typeof program === "string" ? [program] : program;
}

function argv(all: readonly string[]): Argv {
  return all as unknown as Argv;
}
