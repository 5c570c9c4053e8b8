import { ContainerState, type ContainerStatus } from "../gen/cri.ts";
import { abortError, throwIfAborted, unlessGone } from "../lib/errors.ts";
import type { Pod } from "../objects.ts";
import type { PassAhead, PodRuntime, ProbeResults, RuntimePod, SyncOutcome } from "../pipeline.ts";
import { isSidecar } from "../pod/containers.ts";
import { podReference } from "../pod/reference.ts";
import type { ResourcesInForce } from "../resizes.ts";
import type { GivenPod } from "../roles.ts";
import type { Runtime } from "../seams/runtime.ts";
import { type ForesightDeps, foresee } from "./foresight.ts";
import { killContainer, killPod } from "./kill.ts";
import { nameOf } from "./newest.ts";
import { type Plan, isIdle, planPod, resizesAny, startsAny } from "./plan.ts";
import { type ResizeDeps, type Resizing, resizePod } from "./resize.ts";
import { type SandboxDeps, prepareSandbox, runSandbox } from "./run-sandbox.ts";
import type { ReadySandbox } from "./start-container.ts";
import { StartError } from "./start-error.ts";
import { type StarterDeps, type Trail, createStarter } from "./starter.ts";

export interface PodRuntimeDeps extends SandboxDeps, StarterDeps, ForesightDeps, Omit<ResizeDeps, "inForce"> {
  readonly runtime: Runtime;
  readonly inForce: ResourcesInForce;
  readonly uninterrupted: AbortSignal;
  /** The sandbox and its network stand; containers, and maybe long pulls, follow. @param seen the pod with it, where it has
   *  nothing else. */
  readonly onSandboxReady: (pod: Pod, seen: RuntimePod | undefined) => Promise<void>;
  readonly probes: Pick<ProbeResults, "condemnedBy" | "started">;
  /** The pod's status says that all its containers are to start anew. */
  readonly isRestartingAll: (uid: string) => boolean;
}

/** Carries out what planPod decides. @see https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/ */
export function createPodRuntime(deps: PodRuntimeDeps): PodRuntime {
  const { startAll } = createStarter(deps);
  return {
    kill: (observed, pod, graceSeconds, signal) => killPod(deps, { observed, pod, graceSeconds }, signal),
    ahead: (pod, observed, signal) => lookAhead(deps, pod, planFor(deps, pod, observed), signal),
    async sync(pod, observed, ahead, signal) {
      const plan = planFor(deps, pod, observed);
      if (isIdle(plan)) return { untouched: true };
      const trail: Trail = { sandboxes: [], containers: [], rest: [] };
      if (plan.createSandbox && plan.sandboxId !== undefined) {
        deps.events.event(
          podReference(pod),
          "Normal",
          "SandboxChanged",
          "Pod sandbox changed, it will be killed and re-created.",
        );
      }
      try {
        await clearTheWay(deps, pod, observed, plan, signal);
        const foresight = foresee(deps, pod, plan.createSandbox ? [...plan.startInit, ...plan.start] : [], signal);
        const failed = resizesAny(plan) ? await tryResize(deps, { pod, observed, plan }, signal) : undefined;
        const sandbox = await sandboxFor(deps, { pod, observed, plan, ahead, trail }, signal);
        const started = sandbox ? await startAll(plan, { pod, observed, sandbox, foresight, trail }, signal) : [];
        const errors = failed ? [failed, ...started] : started;
        const again = errors.length === 0 && (plan.reset.length > 0 || plan.startInit.some(isSidecar));
        return { ...outcomeOf(errors, trail), ...(again && { again }), ...(failed && { resizeError: failed.message }) };
      } catch (error) {
        if (!signal.aborted) return outcomeOf([error instanceof Error ? error : new Error(String(error))], trail);
        await Promise.all(trail.rest);
        throw abortError(signal);
      }
    },
  };
}

/** What cannot be given now keeps nothing from starting: it is tried again. */
async function tryResize(deps: PodRuntimeDeps, resizing: Resizing, signal: AbortSignal): Promise<Error | undefined> {
  try {
    await resizePod(deps, resizing, signal);
    return undefined;
  } catch (error) {
    throwIfAborted(signal);
    return error instanceof Error ? error : new Error(String(error));
  }
}

function planFor(deps: PodRuntimeDeps, pod: GivenPod, observed: RuntimePod): Plan {
  const { probes, isRestartingAll, inForce } = deps;
  const { uid } = pod.metadata;
  return planPod(pod, observed, {
    condemnedBy: (name, id) => probes.condemnedBy(uid, name, id),
    hasStarted: (name, id) => probes.started(uid, name, id) === true,
    restartAll: isRestartingAll(uid),
    inForce: (status) => inForce.ofContainer(pod, status),
    wholeInForce: () => inForce.ofPod(pod),
    groupIsStale: deps.groups.isStale(pod),
  });
}

/** What fails is told by the pass itself, which then does it again. */
async function lookAhead(deps: SandboxDeps, pod: Pod, plan: Plan, signal: AbortSignal): Promise<PassAhead> {
  if (!plan.createSandbox && !startsAny(plan)) return {};
  try {
    return { sandboxConfig: await prepareSandbox(deps, pod, plan.attempt, signal) };
  } catch {
    throwIfAborted(signal);
    return {};
  }
}

async function clearTheWay(
  deps: PodRuntimeDeps,
  pod: Pod,
  observed: RuntimePod,
  plan: Plan,
  signal: AbortSignal,
): Promise<void> {
  if (plan.killPod) {
    await killPod(deps, { observed, pod, graceSeconds: undefined }, signal);
    if (plan.createSandbox) await purgeInitContainers(deps, pod, observed);
    return;
  }
  for (const { containerId, message, graceSeconds } of plan.kill) {
    const status = observed.containers.find(({ id }) => id === containerId);
    const podIP = observed.ips[0];
    if (status) await killContainer(deps, { status, pod, podIP, message, graceSeconds }, signal);
  }
  await reset(deps, pod, observed, plan, signal);
  await pruneInitContainers(deps, pod, observed);
}

/** Takes a pod's containers away, one after another, those that run without time for anything. Their logs stay until the pod
 *  goes. @see https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#restart-all-containers */
async function reset(
  deps: PodRuntimeDeps,
  pod: Pod,
  { ips: [podIP] }: RuntimePod,
  plan: Plan,
  signal: AbortSignal,
): Promise<void> {
  for (const status of plan.reset) {
    if (status.state !== ContainerState.CONTAINER_EXITED)
      await killContainer(deps, { status, pod, podIP, message: "killing", graceSeconds: 0 }, signal);
    await unlessGone(deps.runtime.removeContainer(status.id, deps.uninterrupted));
  }
}

interface Pass extends Tracked {
  readonly pod: Pod;
  readonly observed: RuntimePod;
  readonly plan: Plan;
  readonly ahead: PassAhead;
}

interface Tracked {
  readonly trail: Trail;
}

/** The sandbox to start containers in, made where the plan says so; undefined when nothing is to be started. */
async function sandboxFor(
  deps: PodRuntimeDeps,
  { pod, observed, plan, ahead: { sandboxConfig }, trail }: Pass,
  signal: AbortSignal,
): Promise<ReadySandbox | undefined> {
  if (plan.createSandbox) {
    const making = runSandbox(deps, pod, plan.attempt, sandboxConfig, signal);
    const { status, ...sandbox } = await countedSandbox(deps, making, signal);
    trail.sandboxes.push(sandbox.id);
    const { ips } = sandbox;
    const isNew = observed.sandboxes.length + observed.containers.length === 0;
    const seen = isNew ? { ...observed, ips, sandboxes: [status] } : undefined;
    await deps.onSandboxReady(pod, seen).catch((error: unknown) => {
      if (!signal.aborted)
        deps.log.debug({ err: error, uid: pod.metadata.uid }, "new sandbox could not be reported, the pass goes on");
    });
    return sandbox;
  }
  if (plan.sandboxId === undefined || !startsAny(plan)) return undefined;
  const config = sandboxConfig ?? (await deps.configureSandbox(pod, plan.attempt, signal));
  return { id: plan.sandboxId, config, ips: observed.ips };
}

async function countedSandbox<T>({ measures }: PodRuntimeDeps, making: Promise<T>, signal: AbortSignal): Promise<T> {
  measures.podStarting();
  try {
    return await making;
  } catch (error) {
    if (!signal.aborted) measures.podFailed();
    throw error;
  }
}

/** Only when every error is a crash loop's does the earliest end of a back-off decide when to try again. */
function outcomeOf(errors: readonly Error[], { sandboxes, containers, rest }: Trail): SyncOutcome {
  const done = { made: { sandboxes, containers }, rest: Promise.all(rest).then(() => undefined) };
  const error = errors[0];
  if (!error) return done;
  const ends = errors.map((each) =>
    each instanceof StartError && each.reason === "CrashLoopBackOff" ? each.retryAt : undefined,
  );
  const known = ends.filter((end) => end !== undefined);
  return known.length === errors.length ? { ...done, error, retryAt: Math.min(...known) } : { ...done, error };
}

type Remover = Pick<PodRuntimeDeps, "runtime" | "unlinkLog" | "uninterrupted" | "log">;

/** A new sandbox starts from the first init container again: what the old one had run is removed. */
async function purgeInitContainers(deps: Remover, pod: Pod, observed: RuntimePod): Promise<void> {
  const names = new Set(pod.spec.initContainers?.map(({ name }) => name));
  await removeAll(
    deps,
    pod,
    observed.containers.filter((status) => names.has(nameOf(status))),
  );
}

/** Of each init container only the newest ended one is kept. */
async function pruneInitContainers(deps: Remover, pod: Pod, observed: RuntimePod): Promise<void> {
  for (const { name } of pod.spec.initContainers ?? []) {
    const ended = observed.containers.filter((status) => nameOf(status) === name && isOver(status.state));
    await removeAll(deps, pod, ended.slice(1));
  }
}

function isOver(state: ContainerState): boolean {
  return state === ContainerState.CONTAINER_EXITED || state === ContainerState.CONTAINER_UNKNOWN;
}

async function removeAll(
  { runtime, unlinkLog, uninterrupted, log }: Remover,
  pod: Pod,
  statuses: readonly ContainerStatus[],
): Promise<void> {
  for (const status of statuses) {
    const { id } = status;
    try {
      await unlessGone(runtime.removeContainer(id, uninterrupted));
      await unlinkLog(pod, nameOf(status), id);
    } catch (error) {
      log.warn({ err: error, containerId: id }, "init container could not be removed, left to garbage collection");
    }
  }
}
