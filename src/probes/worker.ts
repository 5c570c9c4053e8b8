import { ContainerState, type ContainerStatus } from "../gen/cri.ts";
import type { TargetClock } from "../host/target-clock.ts";
import type { Clock } from "../lib/clock.ts";
import type { Logger } from "../lib/log.ts";
import { toMilliseconds } from "../lib/nanoseconds.ts";
import type { Container, Pod, Probe } from "../objects.ts";
import type { ProbeKind, ProbeVerdict } from "../pipeline.ts";
import { restartsAfter } from "../pod/restart.ts";
import { type Attempt, needsPodIP } from "./attempt.ts";
import { createPause } from "./pause.ts";
import type { Reach } from "./reach.ts";
import { type Streak, createStreak } from "./streak.ts";

/** Runs one probe of one container, across its restarts. */
export interface ProbeWorker {
  /** The newest verdict on this container ID; undefined before the worker has seen it. */
  verdictOn(containerId: string): ProbeVerdict | undefined;
  /** Probes now instead of at the next period. */
  poke(): void;
  /** Resolves when the worker has stopped. */
  readonly done: Promise<void>;
}

export interface WorkerDeps {
  readonly kind: ProbeKind;
  readonly clock: Clock;
  readonly log: Logger;
  /** Milliseconds since the epoch. */
  readonly agentStartedAt: number;
  readonly targetClock: Pick<TargetClock, "toOurs">;
  readonly reach: Pick<Reach, "isUp" | "losses">;
  /** The current pod; undefined once it is gone. */
  pod(): Pod | undefined;
  /** The newest container status of that name. */
  observe(): ContainerStatus | undefined;
  podIP(): string | undefined;
  /** Initial verdict on a container, before its first probe. */
  initially(containerId: string): ProbeVerdict;
  /** True if the container has passed its startup probe, or has none. */
  hasStarted(containerId: string): boolean;
  probe(attempt: Omit<Attempt, "kind">, signal: AbortSignal): Promise<"Success" | "Failure" | undefined>;
  onFlip(verdict: ProbeVerdict): void;
}

interface Seen {
  readonly id: string;
  readonly streak: Streak;
  /** Lost connections to the target when the streak began. */
  losses: number;
  verdict: ProbeVerdict;
}

/** Starts probing; ends when `signal` aborts. */
export function startWorker(deps: WorkerDeps, container: Container, probe: Probe, signal: AbortSignal): ProbeWorker {
  const { clock } = deps;
  const periodMs = (probe.periodSeconds ?? 10) * 1000;
  const pause = createPause(clock, signal);
  const looker = createLooker(deps, container, probe);
  const run = async () => {
    // After a restart of the agent, spread the first probes of all containers over a period.
    const adopted = deps.observe()?.state === ContainerState.CONTAINER_RUNNING;
    if (adopted && periodMs > clock.now() - deps.agentStartedAt) await pause.firmly(clock.jitter(0, periodMs));
    while (!signal.aborted) {
      const began = clock.monotonic();
      const waitMs = await looker.look(signal).catch((err: unknown) => {
        if (!signal.aborted) deps.log.warn({ err }, "cannot probe container; retrying");
        return periodMs;
      });
      await pause.until(waitMs && waitMs - (clock.monotonic() - began));
    }
  };
  return { verdictOn: looker.verdictOn, poke: pause.poke, done: run() };
}

interface Looker {
  /** Runs the probe if it is due. @returns milliseconds from the beginning of this call to the next; undefined: when poked. */
  look(signal: AbortSignal): Promise<number | undefined>;
  verdictOn(containerId: string): ProbeVerdict | undefined;
}

/** The kubelet's guards: no probe before the container exists, before its initial delay, or while it does not run; a new container
 *  starts from scratch. Until a container has started, only its startup probe runs, and never again afterwards. A container that failed
 *  its probe, and the pod once it is being deleted, are no longer probed. While the target is unreachable nothing is probed and verdicts
 *  stay; after a reconnect counting starts again, spread over a period, as all probes of the node would run at once. */
function createLooker(deps: WorkerDeps, container: Container, probe: Probe): Looker {
  const { kind } = deps;
  const periodMs = (probe.periodSeconds ?? 10) * 1000;
  let seen: Seen | undefined;
  const meet = (id: string): Seen => {
    if (seen?.id === id) return seen;
    const streak = createStreak({ success: probe.successThreshold ?? 1, failure: probe.failureThreshold ?? 3 });
    seen = { id, streak, losses: deps.reach.losses(), verdict: deps.initially(id) };
    return seen;
  };
  const conclude = (current: Seen, result: "Success" | "Failure") => {
    if (!current.streak.note(result) || current.verdict === result) return;
    current.verdict = result;
    deps.onFlip(result);
  };
  return {
    verdictOn: (id) => (seen?.id === id ? seen.verdict : undefined),
    async look(signal) {
      if (!deps.reach.isUp()) return periodMs;
      const status = deps.observe();
      const pod = deps.pod();
      if (!status || !pod) return periodMs;
      const current = meet(status.id);
      if (kind !== "readiness" && pod.metadata.deletionTimestamp) {
        current.verdict = "Success";
        return undefined;
      }
      if (status.state !== ContainerState.CONTAINER_RUNNING) {
        if (kind === "readiness") current.verdict = "Failure";
        return isOver(status, container, pod) ? undefined : periodMs;
      }
      if (current.losses !== deps.reach.losses()) {
        current.losses = deps.reach.losses();
        current.streak.reset();
        return deps.clock.jitter(0, periodMs);
      }
      if (isSettled(kind, current.verdict) || (kind !== "startup" && !deps.hasStarted(status.id))) return undefined;
      const delayMs = delayLeft(deps, probe, status);
      if (delayMs > 0) return delayMs;
      const podIP = deps.podIP();
      if (podIP === undefined && needsPodIP(probe)) return periodMs;
      const result = await deps.probe({ pod, container, probe, containerId: status.id, podIP }, signal);
      const counts = result === "Success" || kind !== "startup" || delayMs <= -periodMs;
      if (result && counts) conclude(current, result);
      return periodMs;
    },
  };
}

/** True if the container has exited and will not be restarted. */
function isOver({ state, exitCode }: ContainerStatus, container: Container, { spec }: Pod): boolean {
  return state === ContainerState.CONTAINER_EXITED && !restartsAfter(container, spec, exitCode);
}

/** True if this container needs no further probes of this kind. */
function isSettled(kind: ProbeKind, verdict: ProbeVerdict): boolean {
  return kind === "startup" ? verdict !== "Unknown" : kind === "liveness" && verdict === "Failure";
}

/** Milliseconds until the first probe: the initial delay since the container's start, by the target's clock. The kubelet's first probe
 *  comes at a random time within the period after that. So that the container is not killed early, liveness is probed at the end of that
 *  period, and a startup probe that fails within it does not count. @returns a negative number if the delay is over. */
function delayLeft(
  { kind, clock, targetClock }: WorkerDeps,
  { initialDelaySeconds = 0, periodSeconds = 10 }: Probe,
  { startedAt }: ContainerStatus,
): number {
  const delaySeconds = initialDelaySeconds + (kind === "liveness" ? periodSeconds : 0);
  if (delaySeconds === 0 && kind === "readiness") return 0;
  return targetClock.toOurs(toMilliseconds(startedAt)) + delaySeconds * 1000 - clock.now();
}
