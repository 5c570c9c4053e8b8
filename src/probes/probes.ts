import type { ContainerStatus } from "../gen/cri.ts";
import type { TargetClock } from "../host/target-clock.ts";
import type { Clock } from "../lib/clock.ts";
import type { Logger } from "../lib/log.ts";
import { type Service, onAbort } from "../lib/service-group.ts";
import type { Container, Pod, PodStatus, Probe } from "../objects.ts";
import type {
  EventSink,
  PodCache,
  PodStore,
  ProbeResults,
  ProbeVerdict,
  Prober,
  StatusReader,
  Waker,
} from "../pipeline.ts";
import { allContainers, isSidecar } from "../pod/containers.ts";
import type { Host } from "../seams/host.ts";
import type { TargetLink } from "../seams/provider.ts";
import type { Containers } from "../seams/runtime.ts";
import { attemptProbe } from "./attempt.ts";
import { createReach } from "./reach.ts";
import { type ProbeWorker, startWorker } from "./worker.ts";

export interface ProbesDeps {
  readonly host: Pick<Host, "dial" | "fs">;
  /** The way to a target on another machine. */
  readonly link?: TargetLink;
  readonly runtime: Pick<Containers, "execSync">;
  readonly clock: Clock;
  readonly targetClock: Pick<TargetClock, "toOurs">;
  readonly log: Logger;
  readonly events: EventSink;
  readonly cache: PodCache;
  readonly pods: PodStore;
  readonly status: StatusReader;
  readonly waker: Waker;
  /** Milliseconds since the epoch. */
  readonly agentStartedAt: number;
}

export interface Probes extends Prober, ProbeResults, Service {
  /** Stops probing pods whose UIDs are not among these. */
  collect(known: ReadonlySet<string>): void;
}

/** Readiness probes of all pods of a node, a loop for each container that has one. A changed verdict wakes the pod; what was
 *  ready before this agent started stays ready until a verdict says otherwise. `run` ends the loops in its end. A probe
 *  that could not reach the target is no verdict on its container.
 *  @see https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#container-probes */
export function createProbes(deps: ProbesDeps): Probes {
  const { pods, cache, status, log } = deps;
  const loops = new Map<string, { readonly stop: AbortController; readonly workers: Map<string, ProbeWorker> }>();
  const ending = new Set<Promise<void>>();
  const reach = createReach(deps);

  const observe = (uid: string, name: string) => newestOf(cache.get(uid)?.containers, name);
  const statusOf = (uid: string) => status.get(uid) ?? pods.get(uid)?.status;
  const initially = (uid: string, name: string, containerId: string) => verdictIn(statusOf(uid), name, containerId);
  const start = (pod: Pod, container: Container, probe: Probe, signal: AbortSignal): ProbeWorker => {
    const { uid, namespace, name } = pod.metadata;
    const own = log.child({ pod: `${namespace}/${name}`, uid, container: container.name });
    return startWorker(
      {
        ...deps,
        reach,
        log: own,
        pod: () => pods.get(uid) ?? pod,
        observe: () => observe(uid, container.name),
        podIP: () => cache.get(uid)?.ips[0] ?? statusOf(uid)?.podIP,
        initially: (containerId) => initially(uid, container.name, containerId),
        probe: (attempt, given) => attemptProbe({ ...deps, reach }, { title: "Readiness", ...attempt }, given),
        onFlip(verdict) {
          own.debug({ verdict }, "readiness changed");
          deps.waker.wake(uid, "probe");
        },
      },
      container,
      probe,
      signal,
    );
  };
  const remove = (uid: string) => {
    const loop = loops.get(uid);
    loops.delete(uid);
    loop?.stop.abort();
    for (const { done } of loop?.workers.values() ?? []) {
      const ended = done.finally(() => ending.delete(ended));
      ending.add(ended);
    }
  };
  return {
    name: "probes",
    add(pod) {
      const { uid } = pod.metadata;
      if (loops.has(uid)) return;
      const stop = new AbortController();
      const workers = probed(pod).map(
        ({ container, probe }) => [container.name, start(pod, container, probe, stop.signal)] as const,
      );
      if (workers.length > 0) loops.set(uid, { stop, workers: new Map(workers) });
    },
    remove,
    collect: (known) => [...loops.keys()].filter((uid) => !known.has(uid)).forEach(remove),
    readiness(uid, name, containerId) {
      const id = bareId(containerId);
      const worker = loops.get(uid)?.workers.get(name);
      const pod = pods.get(uid);
      if (!worker && !(pod && probed(pod).some(({ container }) => container.name === name))) return undefined;
      const verdict = worker?.verdictOn(id);
      // A container that its probe has not met is probed at once, not at the next period.
      if (verdict === undefined && observe(uid, name)?.id === id) worker?.poke();
      return verdict ?? initially(uid, name, id);
    },
    async run(signal) {
      await onAbort(signal);
      for (const uid of loops.keys()) remove(uid);
      await Promise.all(ending);
    },
  };
}

/** What a pod's status says of a runtime container; not ready when it speaks of another. */
function verdictIn(
  { containerStatuses = [], initContainerStatuses = [] }: PodStatus = {},
  name: string,
  containerId: string,
): ProbeVerdict {
  const known = [...containerStatuses, ...initContainerStatuses].find((one) => one.name === name);
  return known?.ready && bareId(known.containerID) === containerId ? "Success" : "Failure";
}

/** Containers with a readiness probe: main ones and sidecars. */
function probed(pod: Pod): readonly { readonly container: Container; readonly probe: Probe }[] {
  return allContainers(pod).flatMap(({ kind, container }) => {
    const probe = container.readinessProbe;
    const served = kind === "containers" || (kind === "initContainers" && isSidecar(container));
    return probe && served ? [{ container, probe }] : [];
  });
}

function newestOf(containers: readonly ContainerStatus[] | undefined, name: string): ContainerStatus | undefined {
  return containers?.find(({ metadata }) => metadata?.name === name);
}

/** The ID without the runtime's name: pod statuses have `containerd://ID`. */
function bareId(containerId: string | undefined): string {
  return containerId?.replace(/^[a-z0-9-]+:\/\//, "") ?? "";
}
