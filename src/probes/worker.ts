import { ContainerState, type ContainerStatus } from "../gen/cri.ts";
import type { TargetClock } from "../host/target-clock.ts";
import type { Clock } from "../lib/clock.ts";
import type { Logger } from "../lib/log.ts";
import type { Container, Pod, Probe } from "../objects.ts";
import type { ProbeVerdict } from "../pipeline.ts";
import { type Attempt, needsPodIP } from "./attempt.ts";
import { createPause } from "./pause.ts";
import type { Reach } from "./reach.ts";
import { type Streak, createStreak } from "./streak.ts";

/** Probes one container of one pod, whichever runtime container stands for it at the time. */
export interface ProbeWorker {
  /** The newest verdict on this runtime container; undefined before the worker has seen it. */
  verdictOn(containerId: string): ProbeVerdict | undefined;
  /** Looks now instead of at the next period. */
  poke(): void;
  /** Resolves when nothing of it runs any more. */
  readonly done: Promise<void>;
}

export interface WorkerDeps {
  readonly clock: Clock;
  readonly log: Logger;
  /** Milliseconds since the epoch. */
  readonly agentStartedAt: number;
  readonly targetClock: Pick<TargetClock, "toOurs">;
  readonly reach: Pick<Reach, "isUp" | "losses">;
  /** The pod as it is now; undefined when it has gone. */
  pod(): Pod | undefined;
  /** The newest runtime container of that name. */
  observe(): ContainerStatus | undefined;
  podIP(): string | undefined;
  /** What a container counts as before its first verdict. */
  initially(containerId: string): ProbeVerdict;
  probe(attempt: Omit<Attempt, "title">, signal: AbortSignal): Promise<"Success" | "Failure" | undefined>;
  /** The verdict on the container has changed. */
  onFlip(verdict: ProbeVerdict): void;
}

interface Seen {
  readonly id: string;
  readonly streak: Streak;
  /** How often the target had been lost when the streak began. */
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
    // After an agent's restart the probes of all containers would come at once.
    const adopted = deps.observe()?.state === ContainerState.CONTAINER_RUNNING;
    if (adopted && periodMs > clock.now() - deps.agentStartedAt) await pause.firmly(clock.jitter(0, periodMs));
    while (!signal.aborted) {
      const began = clock.monotonic();
      const waitMs = await looker.look(signal).catch((err: unknown) => {
        if (!signal.aborted) deps.log.warn({ err }, "the container could not be probed, will try again");
        return periodMs;
      });
      await pause.until(waitMs && waitMs - (clock.monotonic() - began));
    }
  };
  return { verdictOn: looker.verdictOn, poke: pause.poke, done: run() };
}

interface Looker {
  /** One look. @returns milliseconds from its begin to the next; undefined: when poked. */
  look(signal: AbortSignal): Promise<number | undefined>;
  verdictOn(containerId: string): ProbeVerdict | undefined;
}

/** The kubelet's guards: nothing before there is a container, before its initial delay is over, or while it does not run; a
 *  new container starts anew. While the target is out of reach nothing is probed and the verdict stays; once it is back the
 *  counting begins anew, spread over a period, for all probes of the node would come at once. */
function createLooker(deps: WorkerDeps, container: Container, probe: Probe): Looker {
  const periodMs = (probe.periodSeconds ?? 10) * 1000;
  let seen: Seen | undefined;
  const meet = (id: string): Seen => {
    if (seen?.id === id) return seen;
    const streak = createStreak({ success: probe.successThreshold ?? 1, failure: probe.failureThreshold ?? 3 });
    seen = { id, streak, losses: deps.reach.losses(), verdict: deps.initially(id) };
    return seen;
  };
  return {
    verdictOn: (id) => (seen?.id === id ? seen.verdict : undefined),
    async look(signal) {
      if (!deps.reach.isUp()) return periodMs;
      const status = deps.observe();
      const pod = deps.pod();
      if (!status || !pod) return periodMs;
      const current = meet(status.id);
      if (status.state !== ContainerState.CONTAINER_RUNNING) {
        current.verdict = "Failure";
        return status.state === ContainerState.CONTAINER_EXITED && !restarts(container, pod, status.exitCode)
          ? undefined
          : periodMs;
      }
      if (current.losses !== deps.reach.losses()) {
        current.losses = deps.reach.losses();
        current.streak.reset();
        return deps.clock.jitter(0, periodMs);
      }
      const delayMs = delayLeft(deps, probe, status);
      if (delayMs > 0) return delayMs;
      const podIP = deps.podIP();
      if (podIP === undefined && needsPodIP(probe)) return periodMs;
      const result = await deps.probe({ pod, container, probe, containerId: status.id, podIP }, signal);
      if (!result || !current.streak.note(result) || current.verdict === result) return periodMs;
      current.verdict = result;
      deps.onFlip(result);
      return periodMs;
    },
  };
}

/** Milliseconds that are left of the initial delay since the container started, which the target's clock tells. */
function delayLeft(
  { clock, targetClock }: WorkerDeps,
  { initialDelaySeconds = 0 }: Probe,
  { startedAt }: ContainerStatus,
): number {
  if (initialDelaySeconds === 0) return 0;
  return targetClock.toOurs(Number(startedAt / 1_000_000n)) + initialDelaySeconds * 1000 - clock.now();
}

/** Whether the kubelet would run it again. @see https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#restart-policy */
function restarts(container: Container, { spec }: Pod, exitCode: number): boolean {
  const policy = container.restartPolicy ?? spec.restartPolicy ?? "Always";
  return policy === "Always" || (policy === "OnFailure" && exitCode !== 0);
}
