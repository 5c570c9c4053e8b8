import { abortError } from "../lib/errors.ts";
import type { ContainerSort, StartMeasures } from "../measures.ts";
import type { PodRuntime, StartFailure } from "../pipeline.ts";
import type { CrashLoop } from "./crash-loop.ts";
import {
  type ContainerStart,
  type StartDeps,
  type StartedContainer,
  runPostStart,
  startContainer,
} from "./start-container.ts";
import { StartError } from "./start-error.ts";

export interface StarterDeps extends StartDeps {
  readonly crashLoop: CrashLoop;
  readonly measures: StartMeasures;
}

/** The outcome of one start. */
export interface StartOutcome {
  /** The container that was started, also when its postStart hook failed. */
  readonly started?: StartedContainer;
  /** The failure of the start or of the postStart hook. */
  readonly error?: StartError;
}

export interface Starter extends Pick<PodRuntime, "failures" | "isStarting"> {
  forget(uid: string): void;
  /** Starts a container and runs its postStart hook, unless it is in back-off. @throws the signal's reason. */
  start(start: ContainerStart, sort: ContainerSort, signal: AbortSignal): Promise<StartOutcome>;
}

/** Starts containers, and keeps the failure of each that could not be started. */
export function createStarter(deps: StarterDeps): Starter {
  const failures = new Map<string, Map<string, StartFailure>>();
  const starting = new Set<string>();
  const keyOf = (uid: string, containerName: string) => `${uid} ${containerName}`;
  const note = (uid: string, name: string, error: StartError | undefined) => {
    const known = failures.get(uid) ?? new Map<string, StartFailure>();
    if (error) failures.set(uid, known.set(name, { reason: error.reason, message: error.message }));
    else known.delete(name);
  };

  return {
    failures: (uid) => failures.get(uid) ?? new Map<string, StartFailure>(),
    isStarting: (uid, name) => starting.has(keyOf(uid, name)),
    forget: (uid) => void failures.delete(uid),
    async start(start, sort, signal) {
      if (signal.aborted) throw abortError(signal);
      const { pod, container, observed } = start;
      const { uid } = pod.metadata;
      const key = keyOf(uid, container.name);
      try {
        deps.crashLoop.check(pod, container, observed);
        starting.add(key);
        const outcome = await startCounted(deps, start, sort, signal);
        note(uid, container.name, outcome.error);
        return outcome;
      } catch (error) {
        if (!(error instanceof StartError)) throw error;
        note(uid, container.name, error);
        return { error };
      } finally {
        starting.delete(key);
      }
    },
  };
}

async function startCounted(
  deps: StarterDeps,
  start: ContainerStart,
  sort: ContainerSort,
  signal: AbortSignal,
): Promise<StartOutcome> {
  deps.measures.containerStarting(sort);
  let started: StartedContainer | undefined;
  try {
    started = await startContainer(deps, start, signal);
    await runPostStart(deps, start, started, signal);
    return { started };
  } catch (error) {
    if (error instanceof StartError) {
      deps.measures.containerFailed(sort, error.reason);
      return { ...(started && { started }), error };
    }
    await started?.linked;
    throw error;
  }
}
