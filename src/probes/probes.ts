import type { Pod } from "../objects.ts";
import type { ClockAndLog } from "../lib/log.ts";
import { type Runnable, onAbort } from "../lib/runnables.ts";
import type { EventSink, ProbeKind } from "../pipeline.ts";
import type { AllocatedPod } from "../roles.ts";
import type { Host } from "../seams/host.ts";
import type { TargetLink } from "../seams/provider.ts";
import type { Containers } from "../seams/runtime.ts";
import type { ContainerStarts } from "../state/pod-table.ts";
import type { Column } from "../state/records.ts";
import type { Sends } from "../state/signals.ts";
import type { Prober } from "../sync/ports.ts";
import { type ProbeAttempt, type ProbeAttemptDeps, attemptProbe } from "./attempt.ts";
import { type ProbeClaim, createTargetReachability } from "./target-reachability.ts";
import {
  type PodProbes,
  type ContainerProbe,
  type ContainerProbeResults,
  createVerdicts,
  probeKey,
  probesOf,
  type VerdictDeps,
} from "./verdicts.ts";
import { type ProbeWorker, startProbeWorker } from "./worker.ts";

export interface ProbeMeasures {
  probed(pod: Pod, container: string, kind: ProbeKind, result: "Success" | "Failure", ms: number): void;
  /** The pod's probes have ended. */
  forget(pod: Pod): void;
}

export interface ProbesDeps extends VerdictDeps, ClockAndLog {
  readonly host: Pick<Host, "dial" | "fs">;
  /** The connection to a remote target. */
  readonly link: TargetLink | undefined;
  readonly claim: ProbeClaim;
  readonly runtime: Pick<Containers, "execSync">;
  readonly events: EventSink;
  /** Containers whose start, including postStart, is in progress: they are not probed yet. */
  readonly starts: Pick<Column<ContainerStarts>, "get">;
  readonly signals: Sends<"wakeWorker">;
  /** Calls back when a pod's record is removed. */
  readonly onEnd: (hear: (uid: string) => void) => void;
  readonly measures: ProbeMeasures;
}

export interface Probes extends Prober, ContainerProbeResults, Runnable {}

/** The probes of all pods of a node, one worker per container and probe. A changed verdict wakes the pod. Containers that were ready or
 *  started before the agent's start stay so until their first verdict. `run` stops all workers when it ends. A probe that could not
 *  reach the target gives no verdict on its container.
 *  @see https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#container-probes */
export function createProbes(deps: ProbesDeps): Probes {
  const { desired, log } = deps;
  const podProbes = new Map<string, PodProbes>();
  const ending = new Set<Promise<unknown>>();
  const reachability = createTargetReachability(deps);

  const { results, observe, podIP, initially, verdict, poke } = createVerdicts(deps, podProbes);
  const start = (pod: AllocatedPod, { kind, container, probe }: ContainerProbe, signal: AbortSignal): ProbeWorker => {
    const { uid, namespace, name } = pod.metadata;
    const own = log.child({ pod: `${namespace}/${name}`, uid, container: container.name });
    return startProbeWorker(
      {
        ...deps,
        kind,
        reachability,
        log: own,
        pod: () => desired.get(uid) ?? pod,
        newestStatus: () =>
          deps.starts.get(uid)?.inProgress.has(container.name) ? undefined : observe(uid, container.name),
        podIP: () => podIP(uid),
        initialVerdict: (id) => initially(kind, uid, container.name, id),
        hasStarted: (id) => !container.startupProbe || verdict(uid, "startup", container.name, id) === "Success",
        probe: (attempt, given) => timedProbe({ ...deps, reachability }, { kind, ...attempt }, given),
        onVerdictChange(flipped) {
          own.debug({ probe: kind, verdict: flipped }, "probe verdict changed");
          if (kind === "startup") poke(uid, container.name, () => true);
          deps.signals.wakeWorker.send(uid, "probe");
        },
      },
      container,
      probe,
      signal,
    );
  };
  const remove = (uid: string) => {
    const loop = podProbes.get(uid);
    if (!loop) return;
    podProbes.delete(uid);
    loop.livenessAndStartupStop.abort();
    loop.readinessStop.abort();
    const ended: Promise<unknown> = Promise.all([...loop.workers.values()].map(({ done }) => done)).finally(() => {
      ending.delete(ended);
      deps.measures.forget(loop.pod);
    });
    ending.add(ended);
  };
  deps.onEnd(remove);
  return {
    ...results,
    name: "probes",
    add(pod) {
      const { uid } = pod.metadata;
      if (podProbes.has(uid)) return;
      const loop: PodProbes = {
        pod,
        readinessStop: new AbortController(),
        livenessAndStartupStop: new AbortController(),
        workers: new Map(),
      };
      for (const one of probesOf(pod)) {
        const { signal } = one.kind === "readiness" ? loop.readinessStop : loop.livenessAndStartupStop;
        loop.workers.set(probeKey(one.kind, one.container.name), start(pod, one, signal));
      }
      if (loop.workers.size > 0) podProbes.set(uid, loop);
    },
    stopLivenessAndStartup: (uid) => podProbes.get(uid)?.livenessAndStartupStop.abort(),
    remove,
    async run(signal) {
      await onAbort(signal);
      for (const uid of podProbes.keys()) remove(uid);
      await Promise.all(ending);
    },
  };
}

async function timedProbe(
  deps: ProbesDeps & ProbeAttemptDeps,
  attempt: ProbeAttempt,
  signal: AbortSignal,
): Promise<"Success" | "Failure" | undefined> {
  const { clock, measures } = deps;
  const since = clock.monotonic();
  const result = await attemptProbe(deps, attempt, signal);
  const { pod, container, kind } = attempt;
  if (result) measures.probed(pod, container.name, kind, result, clock.monotonic() - since);
  return result;
}
