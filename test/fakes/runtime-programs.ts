/** What a command does when the fake runtime runs it. */
export interface Program {
  readonly stdout: string;
  readonly stderr: string;
  /** Undefined: it runs until it is stopped. */
  readonly exitCode?: number;
  /** Milliseconds from start to exit. */
  readonly afterMs: number;
  /** It ignores SIGTERM: stopping it takes its whole grace, and it ends with 137. */
  readonly ignoresTerm?: boolean;
}

const forever: Program = { stdout: "", stderr: "", afterMs: 0 };

/** The few programs that tests use: `true`, `false`, `sleep N`, `echo …`, and `sh -c` with a list of those and `exit N`.
 *  Everything else runs until it is stopped. */
export function interpret(argv: readonly string[]): Program {
  const [program = "", ...rest] = argv;
  const name = program.slice(program.lastIndexOf("/") + 1);
  if (name === "sh" && rest[0] === "-c") return script((rest[1] ?? "").split(";").map((part) => part.trim()));
  if (name === "true") return { ...forever, exitCode: 0 };
  if (name === "false") return { ...forever, exitCode: 1 };
  if (name === "echo") return { ...forever, stdout: `${rest.join(" ")}\n`, exitCode: 0 };
  if (name === "sleep") return { ...forever, afterMs: Number(rest[0]) * 1000, exitCode: 0 };
  return forever;
}

function script(parts: readonly string[]): Program {
  let ran: Program = { ...forever, exitCode: 0 };
  for (const part of parts) {
    const words = part.split(/\s+/);
    const toStderr = words.at(-1) === ">&2";
    if (words[0] === "exit") return { ...ran, exitCode: Number(words[1] ?? 0) };
    const step = interpret(toStderr ? words.slice(0, -1) : words);
    if (step.exitCode === undefined) return { stdout: ran.stdout, stderr: ran.stderr, afterMs: 0 };
    ran = {
      stdout: ran.stdout + (toStderr ? "" : step.stdout),
      stderr: ran.stderr + (toStderr ? step.stdout : ""),
      afterMs: ran.afterMs + step.afterMs,
      exitCode: step.exitCode,
    };
  }
  return ran;
}
