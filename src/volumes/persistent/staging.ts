import type { Timer } from "../../lib/clock.ts";
import { createBackoff } from "../../lib/backoff.ts";
import { messageOf } from "../../lib/errors.ts";
import { createSemaphore } from "../../lib/semaphore.ts";
import type { Node } from "../../objects.ts";
import type { Leaving, LeavingDeps } from "./leaving.ts";

/** Delays before unstaging is retried, milliseconds: a driver that starts with the node is ready soon. */
const firstRetryMs = 500;
const longestRetryMs = 5_000;
/** Poll interval for the Node object at start-up, milliseconds. */
const lookMs = 100;

/** State of persistent volumes on the node, shared by their pods. A volume is identified by the ID that its plugin gives it. */
export interface Staging {
  /** Runs work on one volume: never concurrently for the same volume, concurrently for different ones. */
  inTurn<T>(id: string, work: () => Promise<T>): Promise<T>;
  /** True if a pod other than this one uses the volume. */
  isElsewhere(id: string, uid: string): boolean;
  /** The pod is going to use the volume, even if attempts fail: the volume is not unstaged until the pod releases it. */
  wants(id: string, uid: string): void;
  /** The volume is published to the pod. */
  took(id: string, uid: string): void;
  /** True if this process has staged the volume, and it has not been unstaged since. */
  isStanding(id: string): boolean;
  /** The volume is staged now. */
  stands(id: string): void;
  /** The pod is going to use an attached volume: it counts as in use until it is unstaged.
   *  @param name the cluster's name of the volume. */
  uses(id: string, uid: string, name: string): void;
  /** The volume's driver requires no attachment: the cluster may detach it, whichever pod uses it. */
  usesNot(id: string): void;
  /** Reconstructs staged volumes left by a previous process. @throws if the target cannot be read. */
  recover(signal: AbortSignal): Promise<void>;
  /** A pod's volumes are unmounted: unstages those that no other pod uses. Failures are logged and retried, and do not delay the
   *  pod.
   *  @param whole false if the pod may have had volumes that this process does not know. */
  left(uid: string, whole: boolean, signal: AbortSignal): Promise<void>;
  /** Stops all retries. */
  stop(): void;
}

export interface StagingDeps extends LeavingDeps {
  readonly node: () => Node | undefined;
  /** Called with the names of attached volumes that are in use, whenever they change. */
  readonly onUse: (names: readonly string[]) => void;
}

export function createStaging(deps: StagingDeps, kinds: readonly Leaving[]): Staging {
  const inTurn = createKeyedTurns();
  const holders = createHolders();
  const wanting = createHolders();
  const use = createUse(deps.onUse);
  const standing = new Set<string>();
  /** Volumes released by pods, until it is known which of them are staged: the target may be unreachable meanwhile. */
  const gone = new Map<string, readonly string[]>();
  const stopped = new AbortController();
  const unstaging = createUnstaging(deps, stopped.signal, async (kind, id, signal) => {
    await inTurn(id, async () => {
      if (wanting.isElsewhere(id, "")) return;
      standing.delete(id);
      if (await kind.unstage(deps, id, signal)) use.unstaged(id);
    });
  });
  const stagedOf = async (known: readonly string[], signal: AbortSignal) => {
    const found = kinds.map(async (kind) => (await kind.staged(deps, known, signal)).map((id) => ({ kind, id })));
    return (await Promise.all(found)).flat();
  };

  /** Of the volumes left by an earlier process, only those in the Node's volumesAttached count: drivers of the others apparently
   *  require no attachment. */
  const tellUse = async () => {
    let node = deps.node();
    for (; node === undefined; node = deps.node()) await deps.clock.sleep(lookMs, stopped.signal);
    use.known(new Set(node.status?.volumesAttached?.map(({ name }) => name)));
  };

  return {
    inTurn,
    isElsewhere: holders.isElsewhere,
    wants: wanting.took,
    took: holders.took,
    isStanding: (id) => standing.has(id),
    stands: (id) => void standing.add(id),
    uses: use.begins,
    usesNot: use.ends,
    async recover(signal) {
      await Promise.all(kinds.flatMap((kind) => kind.tidy?.(deps, signal) ?? []));
      const found = await stagedOf([], signal);
      for (const { kind, id } of found) if (kind.attaches) use.found(id, `${kind.plugin}/${id}`);
      tellUse().catch(() => undefined);
      for (const { kind, id } of found) void unstaging.tryAt(kind, id, stopped.signal);
    },
    async left(uid, whole, signal) {
      const own = [
        ...new Set([...(gone.get(uid) ?? []), ...holders.left(uid), ...wanting.left(uid), ...use.left(uid)]),
      ];
      if (whole && own.length === 0) return;
      gone.set(uid, own);
      const leaving = (await stagedOf(own, signal)).filter(({ id }) => !whole || own.includes(id));
      await Promise.all(leaving.map(({ kind, id }) => unstaging.tryAt(kind, id, signal)));
      const ids = new Set(leaving.map(({ id }) => id));
      for (const id of own) if (!ids.has(id)) use.unstaged(id);
      gone.delete(uid);
    },
    stop() {
      stopped.abort();
      unstaging.stop();
    },
  };
}

/** A lock per key, forgotten with its last user. */
function createKeyedTurns(): Staging["inTurn"] {
  const turns = new Map<string, { users: number; readonly take: ReturnType<typeof createSemaphore> }>();
  return async (key, work) => {
    const turn = turns.get(key) ?? { users: 0, take: createSemaphore(1) };
    turns.set(key, turn);
    turn.users += 1;
    try {
      return await turn.take(work);
    } finally {
      turn.users -= 1;
      if (turn.users === 0) turns.delete(key);
    }
  };
}

/** Pods by volume. */
function createHolders() {
  const holders = new Map<string, Set<string>>();
  return {
    isElsewhere: (id: string, uid: string) => [...(holders.get(id) ?? [])].some((other) => other !== uid),
    took: (id: string, uid: string) => void holders.set(id, (holders.get(id) ?? new Set()).add(uid)),
    /** Removes the pod. @returns the volumes that it had. */
    left(uid: string): readonly string[] {
      const own = [...holders].filter(([, pods]) => pods.has(uid)).map(([id]) => id);
      for (const id of own) {
        holders.get(id)?.delete(uid);
        if (holders.get(id)?.size === 0) holders.delete(id);
      }
      return own;
    },
  };
}

/** Attached volumes that pods are going to use, or that are staged. Leftovers of an earlier process count once the Node is
 *  known. */
function createUse(onUse: (names: readonly string[]) => void) {
  const names = new Map<string, string>();
  const wanted = createHolders();
  let isKnown = false;
  const tell = () => {
    if (isKnown) onUse([...names.values()].toSorted());
  };
  const note = (id: string, name: string) => {
    if (names.get(id) === name) return;
    names.set(id, name);
    tell();
  };
  return {
    begins(id: string, uid: string, name: string) {
      wanted.took(id, uid);
      note(id, name);
    },
    found: (id: string, name: string) => void names.set(id, name),
    /** @param attached names of the volumes that the cluster has attached. */
    known(attached: ReadonlySet<string>) {
      for (const [id, name] of names) if (!attached.has(name) && !wanted.isElsewhere(id, "")) names.delete(id);
      isKnown = true;
      tell();
    },
    left: wanted.left,
    ends(id: string) {
      if (names.delete(id)) tell();
    },
    /** The volume is no longer staged. */
    unstaged(id: string) {
      if (!wanted.isElsewhere(id, "") && names.delete(id)) tell();
    },
  };
}

/** Unstages volumes with retries, until they are gone or in use again. */
function createUnstaging(
  { clock, log }: Pick<StagingDeps, "clock" | "log">,
  stopped: AbortSignal,
  unstage: (kind: Leaving, id: string, signal: AbortSignal) => Promise<void>,
) {
  const timers = new Map<string, Timer>();
  const told = new Map<string, string>();
  const retries = createBackoff({ clock, initialMs: firstRetryMs, maxMs: longestRetryMs });
  const tryAt = async (kind: Leaving, id: string, signal: AbortSignal): Promise<void> => {
    timers.get(id)?.cancel();
    timers.delete(id);
    try {
      await unstage(kind, id, signal);
      told.delete(id);
      retries.reset(id);
    } catch (error) {
      if (stopped.aborted) return;
      const why = messageOf(error);
      if (told.get(id) !== why) log.warn({ err: error, volume: id }, "cannot unstage volume; retrying");
      told.set(id, why);
      const again = clock.after(retries.next(id), () => void tryAt(kind, id, stopped));
      timers.set(id, again);
    }
  };
  const stop = () => {
    for (const timer of timers.values()) timer.cancel();
  };
  return { tryAt, stop };
}
