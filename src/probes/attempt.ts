import { messageOf, hasCode } from "../lib/errors.ts";
import type { Clock } from "../lib/clock.ts";
import type { Container, Pod, Probe } from "../objects.ts";
import type { EventSink, ProbeKind } from "../pipeline.ts";
import { httpActionRequest } from "../pod/http-action.ts";
import { containerReference } from "../pod/reference.ts";
import { resolvePort } from "../pod/resolve-port.ts";
import type { Host } from "../seams/host.ts";
import type { Containers } from "../seams/runtime.ts";
import { probeGrpc } from "./grpc.ts";
import { type ProbeOutcome, goDurationOfSeconds, maxOutputBytes } from "./outcome.ts";
import type { TargetReachability } from "./target-reachability.ts";
import { runtimeErrorText } from "../pod/error-text.ts";
import { createArgumentSizes, expand } from "../pod/expand.ts";
import { type HttpResult, BodyError, httpGet } from "../host/http-get.ts";
import type { HttpRequest } from "../lib/http-get.ts";
import { dialFailure } from "../host/dial-text.ts";

/** Probe names in events. */
const probeTitles = {
  liveness: "Liveness",
  readiness: "Readiness",
  startup: "Startup",
} as const satisfies { [kind in ProbeKind]: string };

export interface ProbeAttemptDeps {
  readonly host: Pick<Host, "dial">;
  readonly runtime: Pick<Containers, "execSync">;
  readonly reachability: Pick<TargetReachability, "answers" | "losses">;
  readonly clock: Clock;
  readonly events: EventSink;
}

export interface ProbeAttempt {
  readonly kind: ProbeKind;
  readonly pod: Pod;
  readonly container: Container;
  readonly probe: Probe;
  readonly containerId: string;
  readonly podIP: string | undefined;
}

/** How often a probe that errors is tried before its result is discarded. (kubelet, prober.go) */
const maxTries = 3;

/** Probes a container once. Failures, warnings and errors become events of the container.
 *  @returns undefined if the probe could not be run (not counted, and no event if the target itself was unreachable), or if `signal`
 *  aborted. */
export async function attemptProbe(
  deps: ProbeAttemptDeps,
  attempt: ProbeAttempt,
  signal: AbortSignal,
): Promise<"Success" | "Failure" | undefined> {
  const losses = deps.reachability.losses();
  const outcome = await tryProbe(deps, attempt, signal);
  if (signal.aborted) return undefined;
  const { pod, container, probe } = attempt;
  const title = probeTitles[attempt.kind];
  const failed = outcome.kind === "failure" || outcome.kind === "error";
  if (failed && deps.reachability.losses() !== losses) return undefined;
  if (failed && !(await deps.reachability.answers(timeoutOf(probe) * 1000, signal))) return undefined;
  const warn = (reason: string, message: string) =>
    deps.events.event(containerReference(pod, container.name), "Warning", reason, message);
  switch (outcome.kind) {
    case "success":
      return "Success";
    case "warning":
      warn("ProbeWarning", `${title} probe warning: ${outcome.output}`);
      return "Success";
    case "failure":
      warn("Unhealthy", `${title} probe failed: ${outcome.output}`);
      return "Failure";
    case "error":
      warn("Unhealthy", `${title} probe errored and resulted in ${outcome.state} state: ${messageOf(outcome.error)}`);
      return undefined;
  }
}

async function tryProbe(deps: ProbeAttemptDeps, attempt: ProbeAttempt, signal: AbortSignal): Promise<ProbeOutcome> {
  let outcome = await runProbe(deps, attempt, signal);
  for (let tries = 1; outcome.kind === "error" && tries < maxTries && !signal.aborted; tries++)
    outcome = await runProbe(deps, attempt, signal);
  return outcome;
}

async function runProbe(
  { host, runtime, clock }: ProbeAttemptDeps,
  { probe, container, containerId, podIP }: ProbeAttempt,
  signal: AbortSignal,
): Promise<ProbeOutcome> {
  const timeoutSeconds = timeoutOf(probe);
  if (probe.exec)
    return probeExec(runtime, probe.exec.command ?? [], { container, containerId, timeoutSeconds, signal });
  try {
    return await probeNetwork(host, probe, {
      container,
      podIP: podIP ?? "",
      timeoutSeconds,
      signal: clock.within(timeoutSeconds * 1000, signal),
    });
  } catch (error) {
    return { kind: "error", state: "unknown", error };
  }
}

function timeoutOf({ timeoutSeconds = 1 }: Probe): number {
  return timeoutSeconds;
}

interface NetworkTarget {
  readonly container: Container;
  readonly podIP: string;
  readonly timeoutSeconds: number;
  /** Aborts on timeout, or when the outcome is no longer needed. */
  readonly signal: AbortSignal;
}

/** @throws Error if the port cannot be resolved or the probe has no handler. */
function probeNetwork(
  host: Pick<Host, "dial">,
  probe: Probe,
  { container, podIP, timeoutSeconds, signal }: NetworkTarget,
): Promise<ProbeOutcome> {
  if (probe.httpGet) {
    const action = probe.httpGet;
    const port = resolvePort(action.port, container);
    return probeHttp(host, httpActionRequest(action, action.host || podIP, port, "probe"), signal);
  }
  if (probe.tcpSocket)
    return probeTcp(host, probe.tcpSocket.host || podIP, resolvePort(probe.tcpSocket.port, container), signal);
  if (probe.grpc)
    return probeGrpc(host, {
      host: podIP,
      port: probe.grpc.port,
      service: probe.grpc.service ?? "",
      timeoutSeconds,
      signal,
    });
  throw new Error(`missing probe handler for ${container.name}`);
}

/** True if the probe needs the pod's address. */
export function needsPodIP({ exec, httpGet, tcpSocket }: Probe): boolean {
  return !exec && !httpGet?.host && !tcpSocket?.host;
}

interface ExecTarget {
  readonly container: Container;
  /** CRI container ID. */
  readonly containerId: string;
  readonly timeoutSeconds: number;
  readonly signal: AbortSignal;
}

/** Runs a command in the container: exit code 0 is a success; any other exit code, or a timeout, is a failure. `$(VAR)` is expanded from
 *  literal values of the container's env.
 *  @see https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#probe-check-methods */
async function probeExec(
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
      output: `command timed out: ${JSON.stringify(argv.join(" "))} timed out after ${goDurationOfSeconds(timeoutSeconds)}`,
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

/** Sends a GET from the target: status 200 to 399 is a success. A redirect to another host ends the probe with a warning.
 *  @see https://kubernetes.io/docs/tasks/configure-pod-container/configure-liveness-readiness-startup-probes/#http-probes */
export async function probeHttp(
  dialer: Pick<Host, "dial">,
  first: HttpRequest,
  signal: AbortSignal,
): Promise<ProbeOutcome> {
  try {
    return outcomeOf(await httpGet(dialer, first, signal));
  } catch (error) {
    if (error instanceof BodyError) return { kind: "error", state: "failure", error };
    return { kind: "failure", output: messageOf(error) };
  }
}

function outcomeOf({ status, body }: HttpResult): ProbeOutcome {
  if (status >= 200 && status < 300) return { kind: "success", output: body };
  if (status >= 300 && status < 400)
    return { kind: "warning", output: `Probe terminated redirects, Response body: ${body}` };
  return { kind: "failure", output: `HTTP probe failed with statuscode: ${status}` };
}

/** Opens a connection from the target and closes it; a successful connect is a success. */
export async function probeTcp(
  dialer: Pick<Host, "dial">,
  host: string,
  port: number,
  signal: AbortSignal,
): Promise<ProbeOutcome> {
  try {
    const connection = await dialer.dial({ host, port }, signal);
    connection.on("error", () => {});
    connection.destroy();
    return { kind: "success", output: "" };
  } catch (error) {
    return { kind: "failure", output: dialFailure(error, host, port) };
  }
}
