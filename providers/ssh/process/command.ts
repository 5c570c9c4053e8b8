import { CodedError } from "../../../src/lib/errors.ts";

/** Bytes of a script that a shell is given with its question. Some shells read it byte by byte: more goes by a session of its own. */
export const scriptLimit = 64 * 1024;

/** A command with what it reads, and how much of its output is wanted of each stream. */
export interface Command {
  readonly argv: readonly string[];
  readonly stdin: string | Uint8Array;
  readonly limit: number;
}

/** How a command ended; no code when there is no such program. */
export interface Ended {
  readonly code: number | undefined;
  readonly stdout: Buffer;
  readonly stderr: Buffer;
}

/** The program of a command. @throws invalid_argument without one. */
export function programOf(argv: readonly string[]): string {
  const [program] = argv;
  if (program === undefined || program === "")
    throw new CodedError("invalid_argument", "a command needs at least a program");
  if (program.startsWith("-")) throw noProgram(program);
  return program;
}

export function noProgram(program: string): CodedError {
  return new CodedError("not_found", `${program}: the target has no such program`);
}
