import type { Container, Pod, PodStatus, Probe } from "../objects.ts";
import type { PodCache, PodStore, ProbeKind, ProbeResults, ProbeVerdict, StatusReader } from "../pipeline.ts";
import { allContainers, isSidecar } from "../pod/containers.ts";
import { newestRun } from "../pod/runs.ts";
import type { ProbeWorker } from "./worker.ts";

/** Probes that can get a container killed. */
const condemning = ["liveness", "startup"] as const;
const kinds = [...condemning, "readiness"] as const;

/** The probing of one pod. */
export interface Loop {
  /** As it was when its probing began. */
  readonly pod: Pod;
  /** Ends what asks for readiness. */
  readonly stop: AbortController;
  /** Ends what could get a container killed. One signal of both would cost each probe what its listeners do. */
  readonly spared: AbortController;
  /** By keyOf. */
  readonly workers: Map<string, ProbeWorker>;
}

export function keyOf(kind: ProbeKind, containerName: string): string {
  return `${kind} ${containerName}`;
}

/** Verdicts on the containers of a node's pods, from their probes and before the first one. */
export function createVerdicts(
  { cache, status, pods }: { readonly cache: PodCache; readonly status: StatusReader; readonly pods: PodStore },
  loops: ReadonlyMap<string, Loop>,
) {
  const observe = (uid: string, name: string) => newestRun(cache.get(uid), name);
  const statusOf = (uid: string) => status.get(uid) ?? pods.get(uid)?.status;
  const initially = (kind: ProbeKind, uid: string, name: string, containerId: string) =>
    verdictIn(statusOf(uid), { kind, name, containerId });
  const workerOf = (uid: string, kind: ProbeKind, name: string) => loops.get(uid)?.workers.get(keyOf(kind, name));
  const poke = (uid: string, name: string, which: (worker: ProbeWorker) => boolean) => {
    for (const kind of kinds) {
      const worker = workerOf(uid, kind, name);
      if (worker && which(worker)) worker.poke();
    }
  };
  const isProbed = (uid: string, kind: ProbeKind, name: string) =>
    workerOf(uid, kind, name) !== undefined ||
    probed(pods.get(uid)).some((one) => one.kind === kind && one.container.name === name);
  /** The newest verdict. A container that its probes have not met is probed at once, not at the next period. */
  const verdict = (uid: string, kind: ProbeKind, name: string, id: string): ProbeVerdict => {
    if (observe(uid, name)?.id === id) poke(uid, name, ({ verdictOn }) => verdictOn(id) === undefined);
    return workerOf(uid, kind, name)?.verdictOn(id) ?? initially(kind, uid, name, id);
  };
  const results: ProbeResults = {
    readiness: (uid, name, containerId) =>
      isProbed(uid, "readiness", name) ? verdict(uid, "readiness", name, bareId(containerId)) : undefined,
    started(uid, name, containerId) {
      const known = verdict(uid, "startup", name, bareId(containerId));
      return isProbed(uid, "startup", name) ? known === "Success" : undefined;
    },
    condemnedBy: (uid, name, containerId) =>
      condemning.find((kind) => workerOf(uid, kind, name)?.verdictOn(bareId(containerId)) === "Failure"),
  };
  const podIP = (uid: string) => cache.get(uid)?.ips[0] ?? statusOf(uid)?.podIP;
  return { results, observe, podIP, initially, verdict, poke };
}

/** Verdict before the first probe: from the pod's status, unless that describes another container. */
function verdictIn(
  { containerStatuses = [], initContainerStatuses = [] }: PodStatus = {},
  { kind, name, containerId }: { kind: ProbeKind; name: string; containerId: string },
): ProbeVerdict {
  if (kind === "liveness") return "Success";
  const known = [...containerStatuses, ...initContainerStatuses].find((one) => one.name === name);
  const same = bareId(known?.containerID) === containerId ? known : undefined;
  if (kind === "startup") return same?.started ? "Success" : "Unknown";
  return same?.ready ? "Success" : "Failure";
}

/** A probe of a container. */
export interface Probed {
  readonly kind: ProbeKind;
  readonly container: Container;
  readonly probe: Probe;
}

/** The probes of main containers and sidecars. */
export function probed(pod: Pod | undefined): readonly Probed[] {
  return (pod ? allContainers(pod) : []).flatMap(({ kind: list, container }) => {
    if (list !== "containers" && !(list === "initContainers" && isSidecar(container))) return [];
    return kinds.flatMap((kind) => {
      const probe = container[`${kind}Probe`];
      return probe ? [{ kind, container, probe }] : [];
    });
  });
}

/** The ID without the runtime's name: pod statuses have `containerd://ID`. */
function bareId(containerId: string | undefined): string {
  return containerId?.replace(/^[a-z0-9-]+:\/\//, "") ?? "";
}
