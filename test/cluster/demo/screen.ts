import type { ChildProcess } from "node:child_process";
import { run, start } from "../../harness/processes.ts";
import { waitFor } from "../../harness/wait.ts";

/** What a user runs. */
export type Program = "kubectl" | "curl" | "helm";

/** How commands reach the cluster: what is shown is `kubectl …`, what runs is `argv("kubectl", …)`. */
export interface Reach {
  argv(program: Program, args: readonly string[]): readonly string[];
}

/** What a shown command printed. */
export interface Shown {
  readonly code: number;
  readonly output: string;
}

/** A terminal session that the user watches: headings, commands, and their real output. */
export interface Screen {
  heading(text: string): void;
  note(text: string): void;
  /** Runs a command to its end with its output shown. Throws when it fails. `before` is shown before the command (`echo hi |`). */
  show(
    program: Program,
    args: readonly string[],
    options?: { readonly stdin?: string; readonly before?: string },
  ): Promise<Shown>;
  /** Starts a command that stays; resolves when its output contains `until`. */
  hold(program: "kubectl", args: readonly string[], until: string): Promise<ChildProcess>;
}

/** A screen on this process's standard output. */
export function createScreen(reach: Reach): Screen {
  const bold = (text: string): string => (process.stdout.isTTY ? `\u001b[1m${text}\u001b[0m` : text);
  const prompt = (program: string, args: readonly string[], before = ""): void =>
    console.log(bold(`$ ${before}${[program, ...args.map(quoted)].join(" ")}`));
  return {
    heading: (text) => console.log(`\n${bold(`── ${text} ${"─".repeat(Math.max(0, 76 - text.length))}`)}`),
    note: (text) => console.log(text),
    async show(program, args, { stdin = "", before } = {}) {
      prompt(program, args, before);
      const done = await run(reach.argv(program, args), { stdin, timeoutMs: 240_000 });
      const output = done.stdout + done.stderr;
      process.stdout.write(output.endsWith("\n") || output === "" ? output : `${output}\n`);
      if (done.code !== 0) throw new Error(`${program} ${args.join(" ")} ended with ${done.code}`);
      return { code: done.code, output };
    },
    async hold(program, args, until) {
      prompt(program, args, "");
      const child = start(reach.argv(program, args), { stdio: ["ignore", "pipe", "pipe"] });
      let output = "";
      for (const stream of [child.stdout, child.stderr])
        stream?.on("data", (chunk: Buffer) => {
          output += chunk.toString();
          process.stdout.write(chunk);
        });
      await waitFor(`"${until}" from ${program} ${args.join(" ")}`, () => output.includes(until), {
        timeoutMs: 30_000,
        explain: () => output,
      });
      return child;
    },
  };
}

function quoted(arg: string): string {
  return /^[\w@%+=:,./-]+$/.test(arg) ? arg : `'${arg.replaceAll("'", `'\\''`)}'`;
}
