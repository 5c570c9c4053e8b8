import { ContainerState, type ContainerStatus } from "../gen/cri.ts";
import type { TargetClock } from "../host/target-clock.ts";
import type { Clock } from "../lib/clock.ts";
import type { ClockAndLog } from "../lib/log.ts";
import { toMilliseconds } from "../lib/nanoseconds.ts";
import type { Container, Pod, Probe } from "../objects.ts";
import type { ProbeKind, ProbeVerdict } from "../pipeline.ts";
import { restartsAfter } from "../pod/restart.ts";
import { type ProbeAttempt, needsPodIP } from "./attempt.ts";
import type { TargetReachability } from "./target-reachability.ts";

/** Runs one probe of one container, across its restarts. */
export type ProbeWorker = ReturnType<typeof startProbeWorker>;

export interface ProbeWorkerDeps extends ClockAndLog {
  readonly kind: ProbeKind;
  /** Milliseconds since the epoch. */
  readonly agentStartedAt: number;
  readonly targetClock: Pick<TargetClock, "toOurs">;
  readonly reachability: Pick<TargetReachability, "isReachable" | "losses">;
  /** The current pod; undefined once it is gone. */
  pod(): Pod | undefined;
  /** The newest container status of that name. */
  newestStatus(): ContainerStatus | undefined;
  podIP(): string | undefined;
  /** Returns the verdict on a container before its first probe. */
  initialVerdict(containerId: string): ProbeVerdict;
  /** True if the container has passed its startup probe, or has none. */
  hasStarted(containerId: string): boolean;
  probe(attempt: Omit<ProbeAttempt, "kind">, signal: AbortSignal): Promise<"Success" | "Failure" | undefined>;
  onVerdictChange(verdict: ProbeVerdict): void;
}

interface ProbedContainer {
  readonly id: string;
  readonly streak: Streak;
  /** Lost connections to the target when the streak began. */
  losses: number;
  verdict: ProbeVerdict;
}

/** Starts probing; ends when `signal` aborts. */
export function startProbeWorker(deps: ProbeWorkerDeps, container: Container, probe: Probe, signal: AbortSignal) {
  const { clock } = deps;
  const periodMs = (probe.periodSeconds ?? 10) * 1000;
  const pause = createPause(clock, signal);
  const runner = createProbeRunner(deps, container, probe);
  const run = async () => {
    // After a restart of the agent, spread the first probes of all containers over a period.
    const adopted = deps.newestStatus()?.state === ContainerState.CONTAINER_RUNNING;
    if (adopted && periodMs > clock.now() - deps.agentStartedAt)
      await pause.waitUninterrupted(clock.jitter(0, periodMs));
    while (!signal.aborted) {
      const began = clock.monotonic();
      const waitMs = await runner.probeIfDue(signal).catch((err: unknown) => {
        if (!signal.aborted) deps.log.warn({ err }, "cannot probe container; retrying");
        return periodMs;
      });
      await pause.wait(waitMs && waitMs - (clock.monotonic() - began));
    }
  };
  return {
    /** The newest verdict on this container ID; undefined before the worker has seen it. */
    verdictOn: runner.verdictOn,
    /** Probes now instead of at the next period. */
    poke: pause.poke,
    /** Resolves when the worker has stopped. */
    done: run(),
  };
}

/** The kubelet's guards: no probe before the container exists, before its initial delay, or while it does not run; a new container
 *  starts from scratch. The startup probe runs alone until the container has started, and never afterwards. A container that failed
 *  its probe, and the pod once it is being deleted, are no longer probed. While the target is unreachable, nothing is probed and
 *  verdicts stay. After a reconnect, counting restarts, and the first probes are spread over a period: otherwise all probes of the
 *  node would run at once. */
function createProbeRunner(deps: ProbeWorkerDeps, container: Container, probe: Probe) {
  const { kind } = deps;
  const periodMs = (probe.periodSeconds ?? 10) * 1000;
  let probed: ProbedContainer | undefined;
  const track = (id: string): ProbedContainer => {
    if (probed?.id === id) return probed;
    const streak = createStreak({ success: probe.successThreshold ?? 1, failure: probe.failureThreshold ?? 3 });
    probed = { id, streak, losses: deps.reachability.losses(), verdict: deps.initialVerdict(id) };
    return probed;
  };
  const recordResult = (current: ProbedContainer, result: "Success" | "Failure") => {
    if (!current.streak.record(result) || current.verdict === result) return;
    current.verdict = result;
    deps.onVerdictChange(result);
  };
  return {
    verdictOn: (id: string) => (probed?.id === id ? probed.verdict : undefined),
    /** Runs the probe if it is due. @returns milliseconds between the start of this call and the next call; undefined if the next call
     *  waits for a poke. */
    async probeIfDue(signal: AbortSignal) {
      if (!deps.reachability.isReachable()) return periodMs;
      const status = deps.newestStatus();
      const pod = deps.pod();
      if (!status || !pod) return periodMs;
      const current = track(status.id);
      if (kind !== "readiness" && pod.metadata.deletionTimestamp) {
        current.verdict = "Success";
        return undefined;
      }
      if (status.state !== ContainerState.CONTAINER_RUNNING) {
        if (kind === "readiness") current.verdict = "Failure";
        return exitedForGood(status, container, pod) ? undefined : periodMs;
      }
      if (current.losses !== deps.reachability.losses()) {
        current.losses = deps.reachability.losses();
        current.streak.reset();
        return deps.clock.jitter(0, periodMs);
      }
      if (isConclusive(kind, current.verdict) || (kind !== "startup" && !deps.hasStarted(status.id))) return undefined;
      const delayMs = remainingDelayMs(deps, probe, status);
      if (delayMs > 0) return delayMs;
      const podIP = deps.podIP();
      if (podIP === undefined && needsPodIP(probe)) return periodMs;
      const result = await deps.probe({ pod, container, probe, containerId: status.id, podIP }, signal);
      const counts = result === "Success" || kind !== "startup" || delayMs <= -periodMs;
      if (result && counts) recordResult(current, result);
      return periodMs;
    },
  };
}

/** True if the container has exited and will not be restarted. */
function exitedForGood({ state, exitCode }: ContainerStatus, container: Container, { spec }: Pod): boolean {
  return state === ContainerState.CONTAINER_EXITED && !restartsAfter(container, spec, exitCode);
}

/** True if this container needs no further probes of this kind. */
function isConclusive(kind: ProbeKind, verdict: ProbeVerdict): boolean {
  return kind === "startup" ? verdict !== "Unknown" : kind === "liveness" && verdict === "Failure";
}

/** Milliseconds until the first probe: the initial delay since the container's start, by the target's clock. The kubelet's first probe
 *  comes at a random time within the period after that. So that the container is not killed early, liveness is probed at the end of that
 *  period, and a startup probe that fails within it does not count. @returns a negative number if the delay is over. */
function remainingDelayMs(
  { kind, clock, targetClock }: ProbeWorkerDeps,
  { initialDelaySeconds = 0, periodSeconds = 10 }: Probe,
  { startedAt }: ContainerStatus,
): number {
  const delaySeconds = initialDelaySeconds + (kind === "liveness" ? periodSeconds : 0);
  if (delaySeconds === 0 && kind === "readiness") return 0;
  return targetClock.toOurs(toMilliseconds(startedAt)) + delaySeconds * 1000 - clock.now();
}

/** An interruptible wait between two probes. All waits share one abort listener: a node may run fifty probes a second, and a listener each
 *  would cost more than the probe. */
export function createPause(clock: Clock, signal: AbortSignal) {
  let poked = false;
  /** The current wait. */
  let current: { readonly end: () => void; readonly isInterruptible: boolean } | undefined;
  signal.addEventListener("abort", () => current?.end(), { once: true });
  const wait = async (ms: number | undefined, isInterruptible: boolean) => {
    if (!signal.aborted && !(isInterruptible && poked)) {
      const { promise, resolve } = Promise.withResolvers<void>();
      const timer = ms === undefined ? undefined : clock.after(Math.max(0, ms), resolve);
      current = { end: resolve, isInterruptible };
      await promise;
      timer?.cancel();
    }
    current = undefined;
    poked = false;
  };
  return {
    /** Resolves after `ms` (never, if undefined), when poked, or when the signal aborts. */
    wait: (ms: number | undefined) => wait(ms, true),
    /** Resolves after `ms` or when the signal aborts; pokes in between are ignored. */
    waitUninterrupted: (ms: number) => wait(ms, false),
    /** Ends the current interruptible wait; without one, the next wait ends at once. */
    poke() {
      poked = true;
      if (current?.isInterruptible) current.end();
    },
  };
}

/** Counts consecutive equal results. */
type Streak = ReturnType<typeof createStreak>;

/** @see https://kubernetes.io/docs/tasks/configure-pod-container/configure-liveness-readiness-startup-probes/#configure-probes */
function createStreak({ success, failure }: { readonly success: number; readonly failure: number }) {
  let last: "Success" | "Failure" | undefined;
  let run = 0;
  return {
    /** Starts counting again. */
    reset() {
      last = undefined;
    },
    /** Records a result. @returns true if its threshold has been reached. */
    record(result: "Success" | "Failure") {
      run = result === last ? run + 1 : 1;
      last = result;
      return run >= (result === "Success" ? success : failure);
    },
  };
}
