import type { ChildProcess } from "node:child_process";
import { Hopeless, waitFor } from "./wait.ts";

/** A program that runs while the test talks to it. Disposing it kills it. */
export interface Conversation extends AsyncDisposable {
  readonly child: ChildProcess;
  stdout(): string;
  stderr(): string;
  write(text: string): void;
  /** Ends its standard input. */
  endInput(): void;
  /** Waits until its standard output holds `text`; throws at once when it has ended without. */
  says(text: string | RegExp, timeoutMs?: number): Promise<void>;
  /** Waits for its end and returns its exit code, 128 when a signal ended it. */
  ended(timeoutMs?: number): Promise<number>;
  /** SIGKILL, and waits for the end. */
  kill(): Promise<void>;
}

/** Follows what a child with pipes says. */
export function converse(child: ChildProcess): Conversation {
  const out: Buffer[] = [];
  const err: Buffer[] = [];
  let code: number | undefined;
  child.stdout?.on("data", (chunk: Buffer) => out.push(chunk));
  child.stderr?.on("data", (chunk: Buffer) => err.push(chunk));
  child.stdin?.on("error", () => {
    /* it ended without reading: its exit code tells */
  });
  child.once("close", (ended) => {
    code = ended ?? 128;
  });
  const stdout = (): string => Buffer.concat(out).toString();
  const stderr = (): string => Buffer.concat(err).toString();
  const said = (): string => `ended with ${code}; stdout: ${stdout().slice(-2000)}; stderr: ${stderr().slice(-2000)}`;
  const ended = async (timeoutMs = 60_000): Promise<number> => {
    await waitFor("the end of a program", () => code !== undefined, { timeoutMs, everyMs: 20, explain: said });
    return code ?? 128;
  };
  const kill = async (): Promise<void> => {
    child.kill("SIGKILL");
    await ended();
  };
  return {
    child,
    stdout,
    stderr,
    ended,
    kill,
    write: (text) => void child.stdin?.write(text),
    endInput: () => void child.stdin?.end(),
    says: async (text, timeoutMs = 60_000) =>
      void (await waitFor(
        `a program to say ${String(text)}`,
        () => {
          if (typeof text === "string" ? stdout().includes(text) : text.test(stdout())) return true;
          if (code !== undefined) throw new Hopeless(`it did not say ${String(text)}: ${said()}`);
          return false;
        },
        { timeoutMs, everyMs: 20, explain: said },
      )),
    [Symbol.asyncDispose]: kill,
  };
}
