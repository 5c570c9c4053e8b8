import { createInterface } from "node:readline/promises";
import { throwIfAborted } from "../lib/errors.ts";
import { visibleLine } from "../lib/visible-text.ts";

/** User interface of a command. */
export interface Terminal {
  /** Writes a line. Control characters are escaped: the line may contain text from a target. */
  print(line: string): void;
  /** Undefined without an interactive user. @returns the answer; empty if there is none. */
  ask?(question: string, signal: AbortSignal): Promise<string>;
}

export function printJson(terminal: Terminal, value: unknown): void {
  for (const line of JSON.stringify(value, null, 2).split("\n")) terminal.print(line);
}

/** True if an interactive user confirms. */
export async function confirm(terminal: Terminal, question: string, signal: AbortSignal): Promise<boolean> {
  const answer = await terminal.ask?.(`${question} [y/N]`, signal);
  return /^y(es)?$/i.test((answer ?? "").trim());
}

/** Standard output, and the interactive user, if any. */
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
