import { toMilliseconds } from "../lib/nanoseconds.ts";
import { type Container, ContainerState, type PodSandbox, PodSandboxState } from "../gen/cri.ts";
import { podUidLabel } from "../pod/labels.ts";
import { containerNameOf } from "../pod/runs.ts";

/** Limits for dead containers. A negative number means no limit. */
export interface ContainerLimits {
  /** Minimum age of a dead container before it is removed, milliseconds since its creation. */
  readonly minAgeMs: number;
  /** Maximum dead containers to keep per container name and pod. */
  readonly perContainer: number;
  /** Maximum dead containers to keep on the node. */
  readonly all: number;
}

export interface DeadContainersInput {
  /** All containers of the node, including running ones. */
  readonly containers: readonly Container[];
  readonly limits: ContainerLimits;
  /** Current time by the target's clock, milliseconds since the epoch. */
  readonly now: number;
  /** True for a pod whose dead containers are all removed, regardless of limits. */
  readonly isFinished: (uid: string) => boolean;
}

/** Dead containers to remove, oldest of a name first: all of finished pods, then those beyond the limit per name, then those beyond the
 *  node's limit, where each name keeps at least one if possible. Newly created containers are about to start and are kept. Pure.
 *  @see https://kubernetes.io/docs/concepts/architecture/garbage-collection/#container-garbage-collection */
export function deadContainers({ containers, limits, now, isFinished }: DeadContainersInput): readonly Container[] {
  const removals: Container[] = [];
  const units = new Map<string, readonly Container[]>();
  for (const [key, runs] of grouped(containers, (run) => `${uidOf(run)}/${containerNameOf(run)}`)) {
    const finished = isFinished(uidOf(runs[0]));
    const dead = newestFirst(runs).filter(
      (run, index) => isDead(run, finished || index > 0) && toMilliseconds(run.createdAt) <= now - limits.minAgeMs,
    );
    if (finished) removals.push(...dead.toReversed());
    else if (dead.length > 0) units.set(key, dead);
  }
  const keepOfEach = (max: number) => {
    for (const [key, dead] of units) {
      removals.push(...dead.slice(max).reverse());
      units.set(key, dead.slice(0, max));
    }
  };
  if (limits.perContainer >= 0) keepOfEach(limits.perContainer);
  const left = () => [...units.values()].flat();
  if (limits.all >= 0 && left().length > limits.all) {
    keepOfEach(Math.max(1, Math.floor(limits.all / units.size)));
    removals.push(...newestFirst(left()).slice(limits.all).reverse());
  }
  return removals;
}

/** Sandboxes to remove, oldest of a pod first: those that are not ready and have no container, except the newest of a pod that is not
 *  finished. Pure.
 *  @param used IDs of sandboxes that have containers. */
export function deadSandboxes(
  sandboxes: readonly PodSandbox[],
  used: ReadonlySet<string>,
  isFinished: (uid: string) => boolean,
): readonly PodSandbox[] {
  return [...grouped(sandboxes, uidOf)].flatMap(([uid, all]) =>
    newestFirst(all)
      .slice(isFinished(uid) ? 0 : 1)
      .filter(({ id, state }) => state !== PodSandboxState.SANDBOX_READY && !used.has(id))
      .reverse(),
  );
}

/** True for a container that does not run. @param counts true if a created container that never started counts as dead. */
function isDead({ state }: Container, counts: boolean): boolean {
  if (state === ContainerState.CONTAINER_CREATED) return counts;
  return state !== ContainerState.CONTAINER_RUNNING;
}

function uidOf(one: { readonly labels: Readonly<Record<string, string>> } | undefined): string {
  return one?.labels[podUidLabel] ?? "";
}

function newestFirst<T extends { readonly createdAt: bigint }>(list: readonly T[]): readonly T[] {
  return list.toSorted((a, b) => (a.createdAt === b.createdAt ? 0 : a.createdAt < b.createdAt ? 1 : -1));
}

function grouped<T>(list: readonly T[], keyOf: (one: T) => string): ReadonlyMap<string, readonly T[]> {
  return Map.groupBy(list, keyOf);
}
