import type { ContainerInspectInfo } from "dockerode";
import { type BoundedMap, createBoundedMap } from "../../src/lib/bounded-map.ts";

/** Cache of immutable facts by container ID, to save round trips. Evicted entries are requested again. */
export interface Memory {
  readonly sandboxes: BoundedMap<SeenSandbox>;
  /** Inspections of sandboxes that have just started. */
  readonly startInspections: BoundedMap<StartInspection>;
  /** Sandboxes without containers so far. */
  readonly fresh: BoundedMap<true>;
  /** Containers created and not yet started. */
  readonly made: BoundedMap<MadeContainer>;
  readonly containers: BoundedMap<SeenContainer>;
}

/** The parts of a sandbox's inspection that do not change after its start. */
export type SeenSandbox = Pick<ContainerInspectInfo, "Id" | "HostConfig" | "ResolvConfPath">;

export interface StartInspection {
  readonly found: ContainerInspectInfo;
  /** Clock.monotonic() */
  readonly seenAt: number;
}

export interface SeenContainer {
  /** Image reference, for the container's status. */
  readonly imageRef: string;
}

export interface MadeContainer {
  /** Resolves once the log is linked, or linking has failed. */
  readonly linked: Promise<void>;
}

const most = 2000;

export function createMemory(): Memory {
  return {
    sandboxes: createBoundedMap(most),
    startInspections: createBoundedMap(most),
    fresh: createBoundedMap(most),
    made: createBoundedMap(most),
    containers: createBoundedMap(most),
  };
}

/** Caches a started sandbox. */
export function noteSandbox(
  { sandboxes }: Pick<Memory, "sandboxes">,
  { Id, HostConfig, ResolvConfPath, State }: ContainerInspectInfo,
): void {
  if (State.Running) sandboxes.set(Id, { Id, HostConfig, ResolvConfPath });
}
