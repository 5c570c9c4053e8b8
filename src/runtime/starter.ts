import { abortError } from "../lib/errors.ts";
import type { ContainerSort, StartMeasures } from "../measures.ts";
import type { Container, EphemeralContainer, Pod } from "../objects.ts";
import type { PodRuntime, StartFailure } from "../pipeline.ts";
import { isSidecar } from "../pod/containers.ts";
import type { CrashLoop } from "./crash-loop.ts";
import type { Plan } from "./plan.ts";
import { type ContainerStart, type StartDeps, startContainer } from "./start-container.ts";
import { StartError } from "./start-error.ts";

export interface StarterDeps extends StartDeps {
  readonly crashLoop: CrashLoop;
  readonly measures: StartMeasures;
}

/** What a pass has made and begun. */
export interface Trail {
  readonly sandboxes: string[];
  readonly containers: string[];
  readonly rest: Promise<void>[];
}

type Place = Omit<ContainerStart, "container"> & { readonly trail: Trail };

export interface Starter extends Pick<PodRuntime, "failures" | "isStarting"> {
  forget(uid: string): void;
  /** Starts what the plan says, one after another: ephemeral containers, init containers (one that fails keeps those after it
   *  waiting, unless it is a sidecar), then the others.
   *  @returns why containers were not started. @throws what the signal aborted with. */
  startAll(plan: Plan, place: Place, signal: AbortSignal): Promise<readonly Error[]>;
}

/** Starts containers, and remembers of each that could not be started why. */
export function createStarter(deps: StarterDeps): Starter {
  const failures = new Map<string, Map<string, StartFailure>>();
  const starting = new Set<string>();
  const keyOf = (uid: string, containerName: string) => `${uid} ${containerName}`;
  const note = (uid: string, name: string, failure: StartFailure | undefined) => {
    const known = failures.get(uid) ?? new Map<string, StartFailure>();
    if (failure) failures.set(uid, known.set(name, failure));
    else known.delete(name);
  };

  /** @returns why the container was not started, or undefined. */
  const tryStart = async (place: Place, container: Container, signal: AbortSignal): Promise<StartError | undefined> => {
    if (signal.aborted) throw abortError(signal);
    const { pod, observed } = place;
    const { uid } = pod.metadata;
    const key = keyOf(uid, container.name);
    try {
      deps.crashLoop.check(pod, container, observed);
      starting.add(key);
      await startCounted(deps, { ...place, container }, signal);
      note(uid, container.name, undefined);
      return undefined;
    } catch (error) {
      if (!(error instanceof StartError)) throw error;
      note(uid, container.name, { reason: error.reason, message: error.message });
      return error;
    } finally {
      starting.delete(key);
    }
  };

  return {
    failures: (uid) => failures.get(uid) ?? new Map<string, StartFailure>(),
    isStarting: (uid, name) => starting.has(keyOf(uid, name)),
    forget: (uid) => void failures.delete(uid),
    async startAll(plan, place, signal) {
      const errors: Error[] = [];
      for (const container of plan.startEphemeral) {
        const error = await tryStart(place, asContainer(container), signal);
        if (error) errors.push(error);
      }
      for (const container of plan.startInit) {
        const error = await tryStart(place, container, signal);
        if (error) errors.push(error);
        if (error && !isSidecar(container)) return errors;
      }
      for (const container of plan.start) {
        const error = await tryStart(place, container, signal);
        if (error) errors.push(error);
      }
      return errors;
    },
  };
}

async function startCounted(
  deps: StarterDeps,
  start: ContainerStart & { readonly trail: Trail },
  signal: AbortSignal,
): Promise<void> {
  const sort = sortOf(start.pod, start.container);
  deps.measures.containerStarting(sort);
  try {
    await startContainer(
      deps,
      start,
      ({ id, linked }) => {
        start.trail.containers.push(id);
        start.trail.rest.push(linked);
      },
      signal,
    );
  } catch (error) {
    if (error instanceof StartError) deps.measures.containerFailed(sort, error.reason);
    throw error;
  }
}

/** An ephemeral container is a container with a target; what it does not say it does not have. */
function asContainer({ targetContainerName: _target, ...container }: EphemeralContainer): Container {
  return container;
}

function sortOf({ spec: { containers, initContainers } }: Pod, { name }: Container): ContainerSort {
  const isIn = (list: readonly Container[] | undefined) => list?.some((container) => container.name === name);
  return isIn(containers) ? "container" : isIn(initContainers) ? "init_container" : "ephemeral_container";
}
