import { toMilliseconds } from "../lib/nanoseconds.ts";
import { type Container, ContainerState, type PodSandbox, PodSandboxState } from "../gen/cri.ts";
import { podUidLabel } from "../pod/labels.ts";
import { containerNameOf } from "../pod/runs.ts";

/** Limits of dead containers. Numbers below zero are no limit. */
export interface ContainerLimits {
  /** Age below which a dead container stays, milliseconds since it was created. */
  readonly minAgeMs: number;
  /** Dead containers of one name in one pod. */
  readonly perContainer: number;
  /** Dead containers of the node. */
  readonly all: number;
}

export interface DeadInput {
  /** Containers of the node, running ones included. */
  readonly containers: readonly Container[];
  readonly limits: ContainerLimits;
  /** Time of the target's clock, milliseconds since the epoch. */
  readonly now: number;
  /** True for a pod of which everything goes that does not run. */
  readonly isOver: (uid: string) => boolean;
}

/** Dead containers to remove, the oldest of a name first: all of pods that are over, then those beyond the limit of a name, then those
 *  beyond the limit of the node, by which each name keeps one as long as there is room. Newly created containers are about to start, and
 *  stay. Pure.
 *  @see https://kubernetes.io/docs/concepts/architecture/garbage-collection/#container-garbage-collection */
export function deadContainers({ containers, limits, now, isOver }: DeadInput): readonly Container[] {
  const gone: Container[] = [];
  const units = new Map<string, readonly Container[]>();
  for (const [key, runs] of grouped(containers, (run) => `${uidOf(run)}/${containerNameOf(run)}`)) {
    const over = isOver(uidOf(runs[0]));
    const dead = newestFirst(runs).filter(
      (run, index) => isDead(run, over || index > 0) && toMilliseconds(run.createdAt) <= now - limits.minAgeMs,
    );
    if (over) gone.push(...dead.toReversed());
    else if (dead.length > 0) units.set(key, dead);
  }
  const keepOfEach = (most: number) => {
    for (const [key, dead] of units) {
      gone.push(...dead.slice(most).reverse());
      units.set(key, dead.slice(0, most));
    }
  };
  if (limits.perContainer >= 0) keepOfEach(limits.perContainer);
  const left = () => [...units.values()].flat();
  if (limits.all >= 0 && left().length > limits.all) {
    keepOfEach(Math.max(1, Math.floor(limits.all / units.size)));
    gone.push(...newestFirst(left()).slice(limits.all).reverse());
  }
  return gone;
}

/** Sandboxes to remove, the oldest of a pod first: those that are not ready and have no container, but for the newest of a pod that is
 *  not over. Pure.
 *  @param used IDs of sandboxes that have containers. */
export function deadSandboxes(
  sandboxes: readonly PodSandbox[],
  used: ReadonlySet<string>,
  isOver: (uid: string) => boolean,
): readonly PodSandbox[] {
  return [...grouped(sandboxes, uidOf)].flatMap(([uid, all]) =>
    newestFirst(all)
      .slice(isOver(uid) ? 0 : 1)
      .filter(({ id, state }) => state !== PodSandboxState.SANDBOX_READY && !used.has(id))
      .reverse(),
  );
}

/** @param counts whether one that was created and never started counts. */
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
