import { abortError } from "../lib/errors.ts";
import type { ContainerSort, StartMeasures } from "../measures.ts";
import type { Container, EphemeralContainer, Pod } from "../objects.ts";
import type { StartFailure } from "../pipeline.ts";
import { isSidecar } from "../pod/containers.ts";
import type { Starts } from "../state/pod-table.ts";
import type { ColumnWriter } from "../state/rows.ts";
import type { CrashLoop } from "./crash-loop.ts";
import type { Plan } from "./plan.ts";
import { type ContainerStart, type StartDeps, startContainer } from "./start-container.ts";
import { StartError } from "./start-error.ts";

export interface StarterDeps extends StartDeps {
  readonly crashLoop: CrashLoop;
  readonly measures: StartMeasures;
  /** Column that the starter writes. */
  readonly starts: ColumnWriter<Starts>;
}

/** What a pass has made and begun. */
export interface Trail {
  readonly sandboxes: string[];
  readonly containers: string[];
  readonly rest: Promise<void>[];
}

type Place = Omit<ContainerStart, "container"> & { readonly trail: Trail };

export interface Starter {
  /** Starts what the plan says, one after another: ephemeral containers, init containers (one that fails keeps those after it
   *  waiting, unless it is a sidecar), then the others.
   *  @returns why containers were not started. @throws what the signal aborted with. */
  startAll(plan: Plan, place: Place, signal: AbortSignal): Promise<readonly Error[]>;
}

/** Starts containers, and remembers of each that could not be started why. */
export function createStarter(deps: StarterDeps): Starter {
  const change = (uid: string, how: (starts: Starts) => Partial<Starts>) => {
    const before = deps.starts.get(uid) ?? { underWay: new Set<string>(), failures: new Map<string, StartFailure>() };
    deps.starts.set(uid, { ...before, ...how(before) });
  };
  const note = (uid: string, name: string, failure: StartFailure | undefined) =>
    change(uid, ({ failures }) => {
      const others = [...failures].filter(([other]) => other !== name);
      return { failures: new Map(failure ? [...others, [name, failure]] : others) };
    });
  const begin = (uid: string, name: string) =>
    change(uid, ({ underWay }) => ({ underWay: new Set(underWay).add(name) }));
  const end = (uid: string, name: string) =>
    change(uid, ({ underWay }) => ({ underWay: new Set([...underWay].filter((other) => other !== name)) }));

  /** @returns why the container was not started, or undefined. */
  const tryStart = async (place: Place, container: Container, signal: AbortSignal): Promise<StartError | undefined> => {
    if (signal.aborted) throw abortError(signal);
    const { pod, observed } = place;
    const { uid } = pod.metadata;
    try {
      deps.crashLoop.check(pod, container, observed);
      begin(uid, container.name);
      await startCounted(deps, { ...place, container }, signal);
      note(uid, container.name, undefined);
      return undefined;
    } catch (error) {
      if (!(error instanceof StartError)) throw error;
      note(uid, container.name, { reason: error.reason, message: error.message });
      return error;
    } finally {
      end(uid, container.name);
    }
  };

  return {
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
