import type { ContainerInspectInfo } from "dockerode";
import { createBoundedMap } from "../../src/lib/bounded-map.ts";

/** Cache of immutable facts by container ID, to save round trips. Evicted entries are requested again. */
export type ContainerFactCache = ReturnType<typeof createContainerFactCache>;

/** The parts of a sandbox's inspect response that do not change after its start. */
export type SandboxFacts = Pick<ContainerInspectInfo, "Id" | "HostConfig" | "ResolvConfPath">;

export interface StartInspection {
  readonly found: ContainerInspectInfo;
  /** Time of the inspection, by Clock.monotonic(). */
  readonly inspectedAt: number;
}

export interface DockerContainerFacts {
  /** Image reference, for the container's status. */
  readonly imageRef: string;
}

export interface CreatedContainer {
  /** Resolves once the log is linked, or linking has failed. */
  readonly linked: Promise<void>;
}

const maxEntries = 2000;

export function createContainerFactCache() {
  return {
    sandboxes: createBoundedMap<SandboxFacts>(maxEntries),
    /** Inspections of sandboxes that have just started. */
    startInspections: createBoundedMap<StartInspection>(maxEntries),
    /** Sandboxes in which no container has been created yet. */
    emptySandboxes: createBoundedMap<true>(maxEntries),
    /** Containers that have been created but not yet started. */
    createdContainers: createBoundedMap<CreatedContainer>(maxEntries),
    containers: createBoundedMap<DockerContainerFacts>(maxEntries),
  };
}

export function cacheSandbox(
  { sandboxes }: Pick<ContainerFactCache, "sandboxes">,
  { Id, HostConfig, ResolvConfPath, State }: ContainerInspectInfo,
): void {
  if (State.Running) sandboxes.set(Id, { Id, HostConfig, ResolvConfPath });
}
