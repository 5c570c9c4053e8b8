import { CodedError } from "../../../src/lib/errors.ts";

/** Limit of a script for a pooled shell, bytes. A larger script gets its own session, since some shells read scripts byte by
 *  byte. */
export const maxPooledScriptBytes = 64 * 1024;

/** A command, its input, and the limit of each output stream, bytes. */
export interface SshCommand {
  readonly argv: readonly string[];
  readonly stdin: string | Uint8Array;
  readonly limit: number;
}

/** Result of a command; `code` is undefined if there is no such program. */
export interface CommandResult {
  readonly code: number | undefined;
  readonly stdout: Buffer;
  readonly stderr: Buffer;
}

/** Returns the program of a command. @throws invalid_argument without one. */
export function programOf(argv: readonly string[]): string {
  const [program] = argv;
  if (program === undefined || program === "")
    throw new CodedError("invalid_argument", "a command needs at least a program");
  if (program.startsWith("-")) throw noSuchProgram(program);
  return program;
}

export function noSuchProgram(program: string): CodedError {
  return new CodedError("not_found", `${program}: the target has no such program`);
}
