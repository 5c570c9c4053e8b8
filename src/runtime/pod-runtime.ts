import type { PodRuntime, SyncOutcome } from "../sync/ports.ts";
import { abortError, throwIfAborted } from "../lib/errors.ts";
import { isSidecar } from "../pod/containers.ts";
import { hasUserNamespace } from "../pod/security.ts";
import type { AllocatedPod } from "../roles.ts";
import { terminatePod } from "./kill.ts";
import { type PrefetchDeps, prefetchContainers, prefetchesOf, prefetchSandbox } from "./prefetch.ts";
import { type StepResult, type StepContext, type RunStepDeps, runStep } from "./run-step.ts";
import { planPod } from "./plan.ts";
import type { ContainerFacts } from "./planned-kill.ts";
import type { ProbeResults, ActuatedResources } from "./ports.ts";
import type { ReadySandbox } from "./start-container.ts";
import { StartError } from "./start-error.ts";
import { createStarter } from "./start-with-backoff.ts";
import type { Step } from "./step.ts";

export interface PodRuntimeDeps extends Omit<RunStepDeps, "start" | "actuatedResources">, PrefetchDeps {
  readonly actuatedResources: ActuatedResources;
  readonly probes: ProbeResults;
  /** The pod's status has the AllContainersRestarting condition. */
  readonly isRestartingAll: (uid: string) => boolean;
}

/** Plans and executes sync passes over pods.
 *  @see https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/ */
export function createPodRuntime(given: PodRuntimeDeps): PodRuntime {
  const deps = { ...given, ...createStarter(given) };
  return {
    kill: (observed, pod, graceSeconds, signal) => terminatePod(deps, { observed, pod, graceSeconds }, signal),
    async plan(pod, observed, signal) {
      const steps = planPod(pod, observed, containerFacts(deps, pod));
      const { sandbox, containers } = prefetchesOf(steps);
      const { config: sandboxConfig, loggedContainers } = await prefetchSandbox(deps, pod, sandbox, signal);
      throwIfAborted(signal);
      return {
        async perform(mounted, onSandboxReady, until) {
          const prefetched = prefetchContainers(deps, pod, containers, loggedContainers, until);
          const context = { pod, observed, sandboxConfig, prefetched, mounted, onSandboxReady };
          const [outcome] = await Promise.all([runSteps(deps, steps, context, until), prefetched]);
          if (outcome.error && hasUserNamespace(pod) && steps.some(({ kind }) => kind === "runSandbox"))
            deps.measures.userNamespacedPodFailed();
          return outcome;
        },
      };
    },
  };
}

function containerFacts(
  { probes, isRestartingAll, actuatedResources, groups }: PodRuntimeDeps,
  pod: AllocatedPod,
): ContainerFacts {
  const { uid } = pod.metadata;
  return {
    failedProbe: (name, id) => probes.failedProbe(uid, name, id),
    hasStarted: (name, id) => probes.started(uid, name, id) === true,
    restartAll: isRestartingAll(uid),
    actualResources: (status) => actuatedResources.containerResources(pod, status),
    actualPodResources: () => actuatedResources.podResources(pod),
    podCgroupIsStale: groups.isStale(pod),
  };
}

/** Runs the steps in order. Rejects only when the signal aborts. */
async function runSteps(
  deps: RunStepDeps,
  steps: readonly Step[],
  context: Omit<StepContext, "sandbox">,
  signal: AbortSignal,
): Promise<SyncOutcome> {
  if (steps.length === 0) return { untouched: true };
  const done: StepResult[] = [];
  let sandbox: ReadySandbox | undefined;
  try {
    for (const step of steps) {
      const one = await runStep(deps, step, { ...context, sandbox }, signal);
      done.push(one);
      sandbox = one.sandbox ?? sandbox;
      if (one.halts) break;
    }
    await sandbox?.ips;
  } catch (error) {
    await sandbox?.ips.catch(() => undefined);
    if (!signal.aborted) return outcomeOf(done, [error instanceof Error ? error : new Error(String(error))]);
    await restOf(done);
    throw abortError(signal);
  }
  const errors = done.flatMap(({ error }) => error ?? []);
  const { resizeError } = done.find((one) => one.resizeError !== undefined) ?? {};
  return {
    ...outcomeOf(done, errors),
    ...(errors.length === 0 && steps.some(needsAnotherPass) && { again: true }),
    ...(resizeError !== undefined && { resizeError }),
  };
}

/** True if another pass must follow at once: after a reset the pod starts again, after a sidecar the next container starts. */
function needsAnotherPass(step: Step): boolean {
  if (step.kind === "resetContainer") return true;
  return step.kind === "startContainer" && step.containerType === "init_container" && isSidecar(step.container);
}

/** Sets retryAt, the earliest end of a back-off, only if all errors are crash-loop back-offs. */
function outcomeOf(done: readonly StepResult[], errors: readonly Error[]): SyncOutcome {
  const made = {
    sandboxes: done.flatMap((one) => one.made?.sandboxes ?? []),
    containers: done.flatMap((one) => one.made?.containers ?? []),
  };
  const [error] = errors;
  const ends = errors.flatMap((each) =>
    each instanceof StartError && each.reason === "CrashLoopBackOff" ? (each.retryAt ?? []) : [],
  );
  const refused = errors.flatMap((each) => (each instanceof StartError ? (each.refused ?? []) : []));
  return {
    made,
    ...(refused.length > 0 && { refused }),
    rest: restOf(done),
    ...(error && { error }),
    ...(error && ends.length === errors.length && { retryAt: Math.min(...ends) }),
  };
}

async function restOf(done: readonly StepResult[]): Promise<void> {
  await Promise.all(done.flatMap(({ rest }) => rest ?? []));
}
