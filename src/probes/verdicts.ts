import { toMilliseconds } from "../lib/nanoseconds.ts";
import type { TargetClock } from "../host/target-clock.ts";
import type { Container, ContainerStatus, Pod, PodStatus, Probe } from "../objects.ts";
import type { PodCache, PodStore, ProbeKind, ProbeVerdict, StatusReader } from "../pipeline.ts";
import type { ApiPod } from "../roles.ts";
import type { Column } from "../state/records.ts";
import { allContainers, isSidecar, isStaticPod } from "../pod/containers.ts";
import { orderPodIPs } from "../pod/fields.ts";
import { newestRun } from "../pod/runs.ts";
import type { ProbeResults } from "../runtime/ports.ts";
import type { ProbeWorker } from "./worker.ts";

/** Probes whose failure kills the container. */
const killingProbes = ["liveness", "startup"] as const;
const kinds = [...killingProbes, "readiness"] as const;

export interface PodProbes {
  /** The pod as it was when probing started. */
  readonly pod: Pod;
  readonly readinessStop: AbortController;
  /** Stops liveness and startup probes. A combined signal would cost two listeners per probe. */
  readonly livenessAndStartupStop: AbortController;
  /** Probe workers by probe key. */
  readonly workers: Map<string, ProbeWorker>;
}

export interface ContainerProbeResults extends ProbeResults {
  /** Latest result of the container's readiness probe; undefined without one. */
  readiness(uid: string, containerName: string, containerId: string): ProbeVerdict | undefined;
}

export function probeKey(kind: ProbeKind, containerName: string): string {
  return `${kind} ${containerName}`;
}

export interface VerdictDeps {
  readonly podCache: PodCache;
  readonly status: StatusReader;
  readonly desired: PodStore;
  /** The API server's copies of the pods; for a static pod, its mirror pod. */
  readonly apiPods: Pick<Column<ApiPod>, "get">;
  readonly targetClock: Pick<TargetClock, "toOurs">;
  /** The target's addresses, primary first. */
  readonly hostIPs: () => readonly string[];
  /** Milliseconds since the epoch. */
  readonly agentStartedAt: number;
}

/** A container counts as started before the agent if it started at least this many milliseconds earlier. (kubelet) */
const startMarginMs = 10_000;

/** Probe verdicts on a node's containers, and the initial ones before the first probe. */
export function createVerdicts(deps: VerdictDeps, podProbes: ReadonlyMap<string, PodProbes>) {
  const { podCache, status, desired, apiPods } = deps;
  const newestStatus = (uid: string, name: string) => newestRun(podCache.get(uid), name);
  const podStatusOf = (uid: string) => status.get(uid) ?? desired.get(uid)?.status;
  const startedBeforeAgent = (uid: string, name: string) => {
    const startedAt = newestStatus(uid, name)?.startedAt ?? 0n;
    const since = deps.targetClock.toOurs(toMilliseconds(startedAt));
    return startedAt > 0n && since < deps.agentStartedAt - startMarginMs;
  };
  const initialVerdict = (kind: ProbeKind, uid: string, name: string, containerId: string): ProbeVerdict => {
    if (kind === "liveness") return "Success";
    const pod = desired.get(uid);
    // A static pod's manifest has no status: its mirror pod has the containers' state from before a restart.
    const isStatic = pod !== undefined && isStaticPod(pod);
    const mirror = isStatic ? apiPods.get(uid) : undefined;
    const reported =
      reportedStatus(mirror?.status, name, containerId) ?? reportedStatus(podStatusOf(uid), name, containerId);
    if (kind === "readiness") return reported?.ready ? "Success" : "Failure";
    const startedUnreported = isStatic && !mirror && startedBeforeAgent(uid, name);
    return reported?.started || startedUnreported ? "Success" : "Unknown";
  };
  const workerOf = (uid: string, kind: ProbeKind, name: string) =>
    podProbes.get(uid)?.workers.get(probeKey(kind, name));
  const poke = (uid: string, name: string, which: (worker: ProbeWorker) => boolean) => {
    for (const kind of kinds) {
      const worker = workerOf(uid, kind, name);
      if (worker && which(worker)) worker.poke();
    }
  };
  const isProbed = (uid: string, kind: ProbeKind, name: string) =>
    workerOf(uid, kind, name) !== undefined ||
    probesOf(desired.get(uid)).some((one) => one.kind === kind && one.container.name === name);
  /** The newest verdict. A container that its workers have not seen yet is probed at once, not at the next period. */
  const verdict = (uid: string, kind: ProbeKind, name: string, id: string): ProbeVerdict => {
    if (newestStatus(uid, name)?.id === id) poke(uid, name, ({ verdictOn }) => verdictOn(id) === undefined);
    return workerOf(uid, kind, name)?.verdictOn(id) ?? initialVerdict(kind, uid, name, id);
  };
  const results: ContainerProbeResults = {
    readiness: (uid, name, containerId) =>
      isProbed(uid, "readiness", name) ? verdict(uid, "readiness", name, bareId(containerId)) : undefined,
    started(uid, name, containerId) {
      const known = verdict(uid, "startup", name, bareId(containerId));
      return isProbed(uid, "startup", name) ? known === "Success" : undefined;
    },
    failedProbe: (uid, name, containerId) =>
      killingProbes.find((kind) => workerOf(uid, kind, name)?.verdictOn(bareId(containerId)) === "Failure"),
  };
  /** The address that the pod's status shows first, also if the status is not written yet. (kubelet: PodIP of the status) */
  const podIP = (uid: string) =>
    orderPodIPs(podCache.get(uid)?.ips ?? [], deps.hostIPs())[0] ?? podStatusOf(uid)?.podIP;
  return { results, observe: newestStatus, podIP, initially: initialVerdict, verdict, poke };
}

/** The container's entry in a pod's status; undefined if the entry is for another container ID. */
function reportedStatus(
  { containerStatuses = [], initContainerStatuses = [] }: PodStatus = {},
  name: string,
  containerId: string,
): ContainerStatus | undefined {
  const known = [...containerStatuses, ...initContainerStatuses].find((one) => one.name === name);
  return bareId(known?.containerID) === containerId ? known : undefined;
}

export interface ContainerProbe {
  readonly kind: ProbeKind;
  readonly container: Container;
  readonly probe: Probe;
}

/** The probes of main containers and sidecars. */
export function probesOf(pod: Pod | undefined): readonly ContainerProbe[] {
  return (pod ? allContainers(pod) : []).flatMap(({ kind: list, container }) => {
    if (list !== "containers" && !(list === "initContainers" && isSidecar(container))) return [];
    return kinds.flatMap((kind) => {
      const probe = container[`${kind}Probe`];
      return probe ? [{ kind, container, probe }] : [];
    });
  });
}

/** The ID without the runtime prefix: pod statuses have `containerd://ID`. */
function bareId(containerId: string | undefined): string {
  return containerId?.replace(/^[a-z0-9-]+:\/\//, "") ?? "";
}
