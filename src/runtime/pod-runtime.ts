import { abortError, throwIfAborted } from "../lib/errors.ts";
import type { PodRuntime, ProbeResults, SyncOutcome } from "../pipeline.ts";
import { isSidecar } from "../pod/containers.ts";
import type { ActuatedResources } from "../resizes.ts";
import type { AllocatedPod } from "../roles.ts";
import { endPod } from "./kill.ts";
import { type NeedsDeps, answerNeeds, needs } from "./needs.ts";
import { type Done, type Pass, type PerformDeps, perform } from "./perform.ts";
import { planPod } from "./plan.ts";
import type { Judgement } from "./planned-kill.ts";
import type { ReadySandbox } from "./start-container.ts";
import { StartError } from "./start-error.ts";
import { createStarter } from "./starter.ts";
import type { Step } from "./step.ts";

export interface PodRuntimeDeps extends Omit<PerformDeps, "start" | "inForce">, NeedsDeps {
  readonly inForce: ActuatedResources;
  readonly probes: Pick<ProbeResults, "failedProbe" | "started">;
  /** The pod's status has the AllContainersRestarting condition. */
  readonly isRestartingAll: (uid: string) => boolean;
}

/** Plans and executes sync passes over pods.
 *  @see https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/ */
export function createPodRuntime(given: PodRuntimeDeps): PodRuntime {
  const deps = { ...given, ...createStarter(given) };
  return {
    kill: (observed, pod, graceSeconds, signal) => endPod(deps, { observed, pod, graceSeconds }, signal),
    async plan(pod, observed, signal) {
      const steps = planPod(pod, observed, judgementOf(deps, pod));
      const { sandbox = [], containers = [] } = Object.groupBy(steps.flatMap(needs), ({ of }) =>
        of === "sandboxConfig" ? "sandbox" : "containers",
      );
      const { sandboxConfig } = await answerNeeds(deps, pod, sandbox, signal);
      throwIfAborted(signal);
      return {
        perform(show, until) {
          const answers = answerNeeds(deps, pod, containers, until);
          return performAll(deps, steps, { pod, observed, sandboxConfig, answers, show }, until);
        },
      };
    },
  };
}

function judgementOf({ probes, isRestartingAll, inForce, groups }: PodRuntimeDeps, pod: AllocatedPod): Judgement {
  const { uid } = pod.metadata;
  return {
    condemnedBy: (name, id) => probes.failedProbe(uid, name, id),
    hasStarted: (name, id) => probes.started(uid, name, id) === true,
    restartAll: isRestartingAll(uid),
    inForce: (status) => inForce.containerResources(pod, status),
    wholeInForce: () => inForce.podResources(pod),
    groupIsStale: groups.isStale(pod),
  };
}

/** Runs the steps in order. Rejects only when the signal aborts. */
async function performAll(
  deps: PerformDeps,
  steps: readonly Step[],
  context: Omit<Pass, "sandbox">,
  signal: AbortSignal,
): Promise<SyncOutcome> {
  if (steps.length === 0) return { untouched: true };
  const done: Done[] = [];
  let sandbox: ReadySandbox | undefined;
  try {
    for (const step of steps) {
      const one = await perform(deps, step, { ...context, sandbox }, signal);
      done.push(one);
      sandbox = one.sandbox ?? sandbox;
      if (one.halts) break;
    }
  } catch (error) {
    if (!signal.aborted) return outcomeOf(done, [error instanceof Error ? error : new Error(String(error))]);
    await restOf(done);
    throw abortError(signal);
  }
  const errors = done.flatMap(({ error }) => error ?? []);
  const { resizeError } = done.find((one) => one.resizeError !== undefined) ?? {};
  return {
    ...outcomeOf(done, errors),
    ...(errors.length === 0 && steps.some(letsMoreBeDone) && { again: true }),
    ...(resizeError !== undefined && { resizeError }),
  };
}

/** True if another pass must follow at once: after a reset the pod starts again, after a sidecar the next container starts. */
function letsMoreBeDone(step: Step): boolean {
  if (step.do === "resetContainer") return true;
  return step.do === "startContainer" && step.sort === "init_container" && isSidecar(step.container);
}

/** Sets retryAt, the earliest end of a back-off, only if all errors are crash-loop back-offs. */
function outcomeOf(done: readonly Done[], errors: readonly Error[]): SyncOutcome {
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

async function restOf(done: readonly Done[]): Promise<void> {
  await Promise.all(done.flatMap(({ rest }) => rest ?? []));
}
