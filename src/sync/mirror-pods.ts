import { createBackoff } from "../lib/backoff.ts";
import { hasCode } from "../lib/errors.ts";
import type { ClockAndLog } from "../lib/log.ts";
import { type Runnable, onAbort } from "../lib/runnables.ts";
import type { Node, Pod } from "../objects.ts";
import type { NodeSource, PodStore } from "../pipeline.ts";
import { configHashAnnotation, configMirrorAnnotation } from "../pod/labels.ts";
import { podFullName } from "../pod/reference.ts";
import { type PodManager, isMirrorOf } from "./pod-manager.ts";
import type { DesiredPod, ApiPod } from "../roles.ts";
import type { WorkerView } from "../state/pod-table.ts";
import type { Column } from "../state/records.ts";
import type { Subscribes } from "../state/signals.ts";

/** Requests to the API server. They fail with CodedError. */
export interface MirrorApi {
  create(pod: { readonly metadata: { readonly namespace: string } }, signal: AbortSignal): Promise<unknown>;
  /** Deletes the object without a grace period, if its UID is still the same. */
  remove(pod: Pod["metadata"], signal: AbortSignal): Promise<void>;
}

export interface MirrorPodsDeps extends ClockAndLog {
  readonly api: MirrorApi;
  readonly desired: Pick<PodStore, "byName">;
  readonly manager: Pick<PodManager, "mirrorPod" | "mirrorPods" | "staticPods">;
  readonly worker: Pick<Column<WorkerView>, "get" | "list">;
  /** `mirrorsChanged` triggers a reconciliation at once; without it, only failures are retried. */
  readonly signals: Subscribes<"mirrorsChanged">;
  readonly node: NodeSource;
  /** True once every source has reported: before that, a mirror pod may belong to an unknown static pod. */
  readonly allSourcesReady: () => boolean;
  /** Requests another `mirrorsChanged`, as not all sources have reported yet. */
  readonly requeue: () => void;
}

const requestTimeoutMs = 10_000;
/** Delays of retries, milliseconds, by name. */
const retryBackoff = { initialMs: 1_000, maxMs: 30_000 };

/** Maintains a mirror pod in the API server for each static pod: created once the pod has started, replaced if it is outdated or being
 *  deleted, removed once the pod has ended and is no longer wanted. Running pods do not depend on it.
 *  @see https://kubernetes.io/docs/tasks/configure-pod-container/static-pod/ */
export function createMirrorPods(deps: MirrorPodsDeps): Runnable {
  const { manager, clock, log } = deps;
  const backoff = createBackoff({ clock, ...retryBackoff });
  /** Last action, by pod name. */
  const done = new Map<string, string>();
  let wake = new AbortController();
  deps.signals.mirrorsChanged.subscribe(() => wake.abort());

  const allSourcesReady = () => {
    const seen = deps.allSourcesReady();
    if (!seen) deps.requeue();
    return seen;
  };
  const reconcile = async (namespace: string, name: string, signal: AbortSignal) => {
    const key = `${namespace}/${name}`;
    if (backoff.remaining(key) > 0) return;
    const step = nextAction({ ...deps, allSourcesReady }, namespace, name);
    if (!step) return;
    try {
      await (step.do === "create" ? create(deps, step.pod, step.owner, signal) : remove(deps, step.mirror, signal));
      // The watch shows the change soon; until then it is not repeated. If the watch never shows it, the back-off grows.
      const what = `${step.do} ${(step.do === "create" ? step.pod : step.mirror).metadata.uid}`;
      if (done.get(key) !== what) backoff.reset(key);
      done.set(key, what);
      backoff.next(key);
    } catch (error) {
      if (signal.aborted) return;
      const again = backoff.next(key);
      log.warn({ err: error, pod: key, step: step.do, againMs: again }, "cannot reconcile mirror pod; retrying");
    }
  };

  const waitForNext = (pauses: readonly number[], changed: AbortSignal) =>
    pauses.length > 0 ? clock.sleep(Math.min(...pauses), changed).catch(() => undefined) : onAbort(changed);

  return {
    name: "mirror-pods",
    async run(signal) {
      while (!signal.aborted) {
        wake = new AbortController();
        const all = new Map(
          [...manager.staticPods(), ...manager.mirrorPods()].map((pod) => [podFullName(pod), pod.metadata]),
        );
        await Promise.all([...all.values()].map(({ namespace, name }) => reconcile(namespace, name, signal)));
        for (const key of done.keys()) if (!all.has(key)) done.delete(key);
        const pauses = [...all.keys()].map((key) => backoff.remaining(key)).filter((ms) => ms > 0);
        await waitForNext(pauses, AbortSignal.any([signal, wake.signal]));
      }
    },
  };
}

export type MirrorAction =
  | { readonly do: "create"; readonly pod: DesiredPod; readonly owner: Node }
  | { readonly do: "remove"; readonly mirror: ApiPod }
  | undefined;

/** Returns the next action for the pod of one name. */
function nextAction(
  {
    desired: pods,
    manager,
    worker,
    node,
    allSourcesReady,
  }: Pick<MirrorPodsDeps, "desired" | "manager" | "worker" | "node" | "allSourcesReady">,
  namespace: string,
  name: string,
): MirrorAction {
  const desired = pods.byName(namespace, name);
  const mirror = manager.mirrorPod(namespace, name);
  if (desired) {
    // The mirror pod of an older version is kept until that version has ended: only then does the new one start.
    if (!worker.get(desired.metadata.uid)) return undefined;
    const owner = node.node();
    // If the Node is being deleted, garbage collection would delete the mirror pod as well.
    const mayOwn = owner?.metadata.uid && owner.metadata.deletionTimestamp === undefined;
    if (!mirror) return mayOwn ? { do: "create", pod: desired, owner } : undefined;
    return mirror.metadata.deletionTimestamp || !isMirrorOf(mirror, desired) ? { do: "remove", mirror } : undefined;
  }
  if (!mirror || !allSourcesReady()) return undefined;
  const isTerminating = worker
    .list()
    .some(({ pod, phase }) => pod !== undefined && phase !== "finished" && podFullName(pod) === `${namespace}/${name}`);
  return isTerminating ? undefined : { do: "remove", mirror };
}

/** Creates a mirror pod. A node may only create mirror pods that it owns.
 *  @see https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/#noderestriction */
async function create(
  { api, clock, log }: MirrorPodsDeps,
  pod: DesiredPod,
  owner: Node,
  signal: AbortSignal,
): Promise<void> {
  const { name, namespace, labels, annotations } = pod.metadata;
  const hash = annotations?.[configHashAnnotation] ?? "";
  const metadata = {
    name,
    namespace,
    ...(labels && { labels }),
    annotations: { ...annotations, [configMirrorAnnotation]: hash },
    ownerReferences: [
      { apiVersion: "v1", kind: "Node", name: owner.metadata.name, uid: owner.metadata.uid, controller: true },
    ],
  };
  try {
    const body = { apiVersion: "v1", kind: "Pod", metadata, spec: pod.spec };
    await api.create(body, clock.within(requestTimeoutMs, signal));
    log.debug({ pod: podFullName(pod), hash }, "created mirror pod");
  } catch (error) {
    // The watch event has not arrived yet, or another pod has the name, which the watch will show.
    if (!hasCode(error, "already_exists")) throw error;
  }
}

async function remove({ api, clock, log }: MirrorPodsDeps, mirror: ApiPod, signal: AbortSignal): Promise<void> {
  try {
    await api.remove(mirror.metadata, clock.within(requestTimeoutMs, signal));
    log.debug({ pod: podFullName(mirror) }, "deleted mirror pod");
  } catch (error) {
    if (!hasCode(error, "not_found", "conflict")) throw error;
  }
}
