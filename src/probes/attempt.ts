import { messageOf } from "../lib/errors.ts";
import type { Clock } from "../lib/clock.ts";
import type { Container, Pod, Probe } from "../objects.ts";
import type { EventSink, ProbeKind } from "../pipeline.ts";
import { httpActionRequest } from "../pod/http-action.ts";
import { containerReference } from "../pod/reference.ts";
import { resolvePort } from "../pod/resolve-port.ts";
import type { Host } from "../seams/host.ts";
import type { Containers } from "../seams/runtime.ts";
import { probeExec } from "./exec.ts";
import { probeGrpc } from "./grpc.ts";
import { probeHttp } from "./http.ts";
import type { ProbeOutcome } from "./outcome.ts";
import type { TargetReachability } from "./target-reachability.ts";
import { probeTcp } from "./tcp.ts";

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
