import type { ContainerInspectInfo } from "dockerode";
import { type BoundedMap, createBoundedMap } from "../../src/lib/bounded-map.ts";

/** What was made or seen and cannot change, by the IDs of this node's containers, so that it is not asked for again: each question
 *  may be a round trip. What is forgotten is asked for. */
export interface Memory {
  readonly sandboxes: BoundedMap<SeenSandbox>;
  /** Sandboxes that have been started this moment, as they were seen then. */
  readonly firstLooks: BoundedMap<FirstLook>;
  /** Sandboxes in which nothing has been made yet. */
  readonly fresh: BoundedMap<true>;
  /** Containers that were made, and not started since. */
  readonly made: BoundedMap<MadeContainer>;
  readonly containers: BoundedMap<SeenContainer>;
}

/** What of a sandbox's inspection stays as it is once it has started. */
export type SeenSandbox = Pick<ContainerInspectInfo, "Id" | "HostConfig" | "ResolvConfPath">;

export interface FirstLook {
  readonly found: ContainerInspectInfo;
  /** Clock.monotonic() */
  readonly seenAt: number;
}

export interface SeenContainer {
  /** The reference of its image, which its status shows. */
  readonly imageRef: string;
}

export interface MadeContainer {
  /** Resolves when its log is linked, or cannot be. */
  readonly linked: Promise<void>;
}

const most = 2000;

export function createMemory(): Memory {
  return {
    sandboxes: createBoundedMap(most),
    firstLooks: createBoundedMap(most),
    fresh: createBoundedMap(most),
    made: createBoundedMap(most),
    containers: createBoundedMap(most),
  };
}

/** Notes a sandbox that has started. */
export function noteSandbox(
  { sandboxes }: Pick<Memory, "sandboxes">,
  { Id, HostConfig, ResolvConfPath, State }: ContainerInspectInfo,
): void {
  if (State.Running) sandboxes.set(Id, { Id, HostConfig, ResolvConfPath });
}
