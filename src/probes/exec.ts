import { hasCode } from "../lib/errors.ts";
import type { Container } from "../objects.ts";
import { runtimeErrorText } from "../pod/error-text.ts";
import { createArgumentSizes, expand } from "../pod/expand.ts";
import type { Containers } from "../seams/runtime.ts";
import { type ProbeOutcome, goDuration, maxOutputBytes } from "./outcome.ts";

export interface ExecTarget {
  readonly container: Container;
  /** CRI container ID. */
  readonly containerId: string;
  readonly timeoutSeconds: number;
  readonly signal: AbortSignal;
}

/** Runs a command in the container: exit code 0 is a success; any other exit code, or a timeout, is a failure. `$(VAR)` is expanded from
 *  literal values of the container's env.
 *  @see https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#probe-check-methods */
export async function probeExec(
  runtime: Pick<Containers, "execSync">,
  command: readonly string[],
  target: ExecTarget,
): Promise<ProbeOutcome> {
  const { container, containerId, timeoutSeconds, signal } = target;
  let argv: readonly string[] = [];
  try {
    argv = expanded(command, container);
    const { exitCode, stdout, stderr } = await runtime.execSync(containerId, argv, timeoutSeconds, signal);
    const output = Buffer.concat([stdout, stderr]).subarray(0, maxOutputBytes).toString();
    return { kind: exitCode === 0 ? "success" : "failure", output };
  } catch (error) {
    if (!hasCode(error, "deadline_exceeded"))
      return { kind: "error", state: "unknown", error: new Error(runtimeErrorText(error), { cause: error }) };
    return {
      kind: "failure",
      output: `command timed out: ${JSON.stringify(argv.join(" "))} timed out after ${goDuration(timeoutSeconds)}`,
    };
  }
}

function expanded(command: readonly string[], { env = [] }: Container): string[] {
  const values = new Map(env.map(({ name, value }) => [name, value ?? ""]));
  const sum = createArgumentSizes("the arguments of the probe command");
  return command.map((text, index) => {
    const what = `exec.command[${index}] of the probe`;
    const word = expand(text, (name) => values.get(name), what);
    sum.add(what, word);
    return word;
  });
}
