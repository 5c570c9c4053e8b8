import type { ContainerInspectInfo } from "dockerode";
import { type BoundedMap, createBoundedMap } from "../../src/lib/bounded-map.ts";

/** Cache of immutable facts by container ID, to save round trips. Evicted entries are requested again. */
export interface ContainerFactCache {
  readonly sandboxes: BoundedMap<SandboxFacts>;
  /** Inspections of sandboxes that have just started. */
  readonly startInspections: BoundedMap<StartInspection>;
  /** Sandboxes without containers so far. */
  readonly emptySandboxes: BoundedMap<true>;
  /** Containers created and not yet started. */
  readonly createdContainers: BoundedMap<CreatedContainer>;
  readonly containers: BoundedMap<ContainerFacts>;
}

/** The parts of a sandbox's inspection that do not change after its start. */
export type SandboxFacts = Pick<ContainerInspectInfo, "Id" | "HostConfig" | "ResolvConfPath">;

export interface StartInspection {
  readonly found: ContainerInspectInfo;
  /** Clock.monotonic() */
  readonly inspectedAt: number;
}

export interface ContainerFacts {
  /** Image reference, for the container's status. */
  readonly imageRef: string;
}

export interface CreatedContainer {
  /** Resolves once the log is linked, or linking has failed. */
  readonly linked: Promise<void>;
}

const maxEntries = 2000;

export function createContainerFactCache(): ContainerFactCache {
  return {
    sandboxes: createBoundedMap(maxEntries),
    startInspections: createBoundedMap(maxEntries),
    emptySandboxes: createBoundedMap(maxEntries),
    createdContainers: createBoundedMap(maxEntries),
    containers: createBoundedMap(maxEntries),
  };
}

export function cacheSandbox(
  { sandboxes }: Pick<ContainerFactCache, "sandboxes">,
  { Id, HostConfig, ResolvConfPath, State }: ContainerInspectInfo,
): void {
  if (State.Running) sandboxes.set(Id, { Id, HostConfig, ResolvConfPath });
}
