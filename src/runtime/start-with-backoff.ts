import { abortError } from "../lib/errors.ts";
import type { ContainerType } from "./step.ts";
import type { StartFailure } from "../pipeline.ts";
import type { ContainerStarts } from "../state/pod-table.ts";
import type { ColumnWriter } from "../state/records.ts";
import type { CrashLoop } from "./crash-loop.ts";
import {
  type ContainerStart,
  type StartDeps,
  type StartedContainer,
  runPostStart,
  startContainer,
  type StartMeasures,
} from "./start-container.ts";
import { StartError } from "./start-error.ts";

export interface StarterDeps extends StartDeps {
  readonly crashLoop: CrashLoop;
  readonly measures: StartMeasures;
  /** State column written by the starter. */
  readonly starts: ColumnWriter<ContainerStarts>;
}

export interface StartOutcome {
  /** The started container, also if its postStart hook failed. */
  readonly started?: StartedContainer;
  /** Failure of the start or of the postStart hook. */
  readonly error?: StartError;
}

export type Starter = ReturnType<typeof createStarter>;

/** Starts containers, and records the last failure of each container. */
export function createStarter(deps: StarterDeps) {
  const updateStarts = (uid: string, how: (starts: ContainerStarts) => Partial<ContainerStarts>) => {
    const before = deps.starts.get(uid) ?? { inProgress: new Set<string>(), failures: new Map<string, StartFailure>() };
    deps.starts.set(uid, { ...before, ...how(before) });
  };
  const recordFailure = (uid: string, name: string, error: StartError | undefined) =>
    updateStarts(uid, ({ failures }) => {
      const others = [...failures].filter(([other]) => other !== name);
      const failure = error && { reason: error.reason, message: error.message };
      return { failures: new Map(failure ? [...others, [name, failure]] : others) };
    });
  const markStarting = (uid: string, name: string) =>
    updateStarts(uid, ({ inProgress }) => ({ inProgress: new Set(inProgress).add(name) }));
  const unmarkStarting = (uid: string, name: string) =>
    updateStarts(uid, ({ inProgress }) => ({ inProgress: new Set([...inProgress].filter((other) => other !== name)) }));

  return {
    /** Starts a container and runs its postStart hook, unless it is in back-off. @throws the signal's reason. */
    async start(start: ContainerStart, containerType: ContainerType, signal: AbortSignal) {
      if (signal.aborted) throw abortError(signal);
      const { pod, container, observed } = start;
      const { uid } = pod.metadata;
      try {
        deps.crashLoop.check(pod, container, observed);
        markStarting(uid, container.name);
        const outcome = await startMeasured(deps, start, containerType, signal);
        recordFailure(uid, container.name, outcome.error);
        return outcome;
      } catch (error) {
        if (!(error instanceof StartError)) throw error;
        recordFailure(uid, container.name, error);
        return { error };
      } finally {
        unmarkStarting(uid, container.name);
      }
    },
  };
}

async function startMeasured(
  deps: StarterDeps,
  start: ContainerStart,
  containerType: ContainerType,
  signal: AbortSignal,
): Promise<StartOutcome> {
  deps.measures.containerStarting(containerType);
  let started: StartedContainer | undefined;
  try {
    started = await startContainer(deps, start, signal);
    await runPostStart(deps, start, started, signal);
    return { started };
  } catch (error) {
    if (error instanceof StartError) {
      deps.measures.containerFailed(containerType, error.reason);
      return { ...(started && { started }), error };
    }
    await started?.linked;
    throw error;
  }
}
