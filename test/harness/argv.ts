import type { Argv } from "../../src/seams/command.ts";

/** Words that a test wrote itself, as a command for `Host.run` and `Host.spawn`. */
export function argvOf(words: readonly string[]): Argv {
  return words as unknown as Argv;
}
