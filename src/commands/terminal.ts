import { createInterface } from "node:readline/promises";
import { throwIfAborted } from "../lib/errors.ts";
import type { ProviderFactory } from "../seams/provider.ts";
import { visibleLine } from "../lib/visible-text.ts";

/** Everything that a command gets in addition to its options. */
export interface CommandContext {
  readonly terminal: Terminal;
  readonly providers: Readonly<Record<string, ProviderFactory>>;
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly signal: AbortSignal;
}

/** User interface of a command. */
export interface Terminal {
  /** Writes a line. Control characters are escaped: the line may contain text from a target. */
  print(line: string): void;
  /** Asks the interactive user; undefined if there is none. @returns the answer; empty if the input has ended. */
  ask?(question: string, signal: AbortSignal): Promise<string>;
}

export function printJson(terminal: Terminal, value: unknown): void {
  for (const line of JSON.stringify(value, null, 2).split("\n")) terminal.print(line);
}

/** Asks the interactive user to confirm. @returns true for yes; otherwise prints that nothing was done.
 *  @param words for the printed line, such as `removed` and `remove`. */
export async function confirm(
  terminal: Terminal,
  question: string,
  [done, act]: readonly [done: string, act: string],
  signal: AbortSignal,
): Promise<boolean> {
  const answer = await terminal.ask?.(`${question} [y/N]`, signal);
  if (/^y(es)?$/i.test((answer ?? "").trim())) return true;
  terminal.print(`nothing was ${done}${terminal.ask ? "" : `; run this with --yes to ${act} it`}`);
  return false;
}

/** The process's standard output, and its interactive user, if any. */
export function processTerminal(): Terminal {
  const print = (line: string) => void process.stdout.write(`${visibleLine(line)}\n`);
  if (!process.stdin.isTTY || !process.stdout.isTTY) return { print };
  return {
    print,
    async ask(question, signal) {
      const lines = createInterface({ input: process.stdin, output: process.stdout });
      // A failed input counts as ended.
      lines.on("error", () => lines.close());
      try {
        // The end of the input counts as an empty answer.
        const ended = new Promise<string>((resolve) => lines.once("close", () => resolve("")));
        return await Promise.race([lines.question(`${visibleLine(question)} `, { signal }), ended]);
      } catch {
        throwIfAborted(signal);
        return "";
      } finally {
        lines.close();
      }
    },
  };
}
