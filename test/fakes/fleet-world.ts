import { absentApi } from "../../src/api/absent.ts";
import type { ApiClient, CallOptions, WatchEvent } from "../../src/api/client.ts";
import type { GraftedNode } from "../../src/fleet/grafted-node.ts";
import { type Clock, sleepOn } from "../../src/lib/clock.ts";
import { CodedError } from "../../src/lib/errors.ts";
import type { ObjectMeta } from "../../src/objects.ts";
import { withinOn } from "./clock.ts";

interface Stored {
  readonly metadata: ObjectMeta;
  readonly status?: object;
}

interface LoggedEvent {
  readonly version: number;
  readonly event: WatchEvent<Stored>;
}

/** A change of an object's owner. */
export interface OwnerChange {
  readonly name: string;
  readonly uid: string;
  readonly epoch: number;
  /** Milliseconds. */
  readonly at: number;
}

export type SimulatedApi = ReturnType<typeof simulatedApi>;

/** An API server that stores a namespace's objects, with resource versions, merge patches that compare them, and watches. It answers at
 *  once; `simulatedProcess` adds delays. */
export function simulatedApi(clock: Pick<Clock, "monotonic">) {
  const stores = new Map<string, Map<string, Stored>>();
  const logs = new Map<string, LoggedEvent[]>();
  const watchers = new Set<() => void>();
  const ownerChanges: OwnerChange[] = [];
  let version = 0;
  const storeOf = (kind: string) => {
    const store = stores.get(kind) ?? new Map<string, Stored>();
    stores.set(kind, store);
    return store;
  };
  const logOf = (kind: string) => {
    const log = logs.get(kind) ?? [];
    logs.set(kind, log);
    return log;
  };
  const send = (kind: string, event: WatchEvent<Stored>) => {
    logOf(kind).push({ version, event });
    const waiting = [...watchers];
    for (const wake of waiting) wake();
  };
  const put = (kind: string, object: Stored): Stored => {
    const { name = "" } = object.metadata;
    const isNew = !storeOf(kind).has(name);
    version += 1;
    const metadata = { ...object.metadata, resourceVersion: String(version) };
    const stored = { ...object, metadata };
    storeOf(kind).set(name, stored);
    send(kind, { type: isNew ? "ADDED" : "MODIFIED", object: stored });
    return stored;
  };
  let isRefusing = false;
  return {
    put,
    ownerChanges,
    /** From now on, most requests fail: the server is overloaded, or objects have changed meanwhile. */
    refuse(refuses: boolean): void {
      isRefusing = refuses;
    },
    /** The error that the next request gets; undefined if it is served. */
    refusal(random: () => number): CodedError | undefined {
      if (!isRefusing || random() < 0.3) return undefined;
      return new CodedError(random() < 0.5 ? "resource_exhausted" : "conflict", "the API server refuses this for now");
    },
    objects: (kind: string) => [...storeOf(kind).values()],
    version: () => String(version),
    patch(kind: string, name: string, body: Partial<Stored>, compares: boolean): Stored {
      const now = storeOf(kind).get(name);
      if (!now && compares) throw new CodedError("not_found", name);
      if (compares && body.metadata?.resourceVersion !== now?.metadata.resourceVersion)
        throw new CodedError("conflict", name);
      const { owner } = (body.status ?? {}) as NonNullable<GraftedNode["status"]>;
      if (owner) ownerChanges.push({ name, uid: owner.uid, epoch: owner.epoch, at: clock.monotonic() });
      const metadata = { uid: `uid-${name}`, ...now?.metadata, ...body.metadata, name };
      return put(kind, {
        ...now,
        ...body,
        metadata,
        ...(body.status && { status: { ...now?.status, ...body.status } }),
      });
    },
    remove(kind: string, name: string): void {
      const object = storeOf(kind).get(name);
      storeOf(kind).delete(name);
      version += 1;
      if (object) send(kind, { type: "DELETED", object });
    },
    /** Events after a version. */
    eventsAfter: (kind: string, after: number) => logOf(kind).filter((logged) => logged.version > after),
    subscribe(wake: () => void): () => void {
      watchers.add(wake);
      return () => watchers.delete(wake);
    },
  };
}

export type SimulatedProcess = ReturnType<typeof simulatedProcess>;

function isVersioned(body: Partial<Stored>): boolean {
  return body.metadata?.resourceVersion !== undefined;
}

function ownerOf(object: Partial<GraftedNode> | undefined): string | undefined {
  return object?.status?.owner?.uid;
}

/** A process that can be stopped and continued, killed, or cut off from the API server, with a clock and an API client of its own. Its time
 *  of day differs from that of others by up to an hour. @param uid UID of the replica that it is. */
export function simulatedProcess(base: Clock, api: SimulatedApi, random: () => number, uid: string) {
  const skewMs = (random() - 0.5) * 7_200_000;
  let state: "running" | "stopped" | "dead" = "running";
  let isCutOff = false;
  const held: (() => void)[] = [];
  const broken = new Set<() => void>();
  const enter = (fn: () => void) => {
    if (state === "running") fn();
    else if (state === "stopped") held.push(fn);
  };
  const after: Clock["after"] = (ms, fn) => base.after(ms, () => enter(fn));
  const clock: Clock = {
    ...base,
    now: () => base.now() + skewMs,
    after,
    deadline: after,
    sleep: (ms, signal) => sleepOn(after, ms, signal),
    within: (ms, signal) => withinOn(after, ms, signal),
  };
  const unavailable = () => new CodedError("unavailable", "the API server cannot be reached");
  const delayMs = () => 1 + random() * 150;
  /** A request: it arrives and is answered after delays. */
  const ask = <T>(work: () => T): Promise<T> =>
    new Promise((resolve, reject) => {
      const answer = (fn: () => void) => void base.after(delayMs(), () => enter(fn));
      base.after(delayMs(), () => {
        if (isCutOff) return answer(() => reject(unavailable()));
        const refusal = api.refusal(random);
        if (refusal) return answer(() => reject(refusal));
        try {
          const result = work();
          answer(() => (isCutOff ? reject(unavailable()) : resolve(result)));
        } catch (error) {
          answer(() => reject(error instanceof Error ? error : new Error(String(error))));
        }
      });
    });
  const kindAndName = (path: string) => {
    const [kind = "", name = ""] = path.split("/namespaces/")[1]?.split("/").slice(1) ?? [];
    return { kind, name };
  };
  const client: ApiClient = {
    ...absentApi(),
    get: <T>(path: string) => {
      const { kind, name } = kindAndName(path);
      return ask(() => {
        const found = api.objects(kind).find(({ metadata }) => metadata.name === name);
        if (!found) throw new CodedError("not_found", path);
        return found as T;
      });
    },
    list: <T>(path: string) =>
      ask(() => ({ items: api.objects(kindAndName(path).kind) as T[], metadata: { resourceVersion: api.version() } })),
    create: <T>() => ask(() => ({}) as T),
    patch: <T>(path: string, { type, body }: { readonly type: string; readonly body: object }) => {
      const { kind, name } = kindAndName(path);
      return ask(() => {
        // As the chart's admission policy.
        const owners = [body, api.objects(kind).find(({ metadata }) => metadata.name === name)].map((object) =>
          ownerOf(object),
        );
        if (path.endsWith("/status") && !owners.includes(uid)) throw new CodedError("permission_denied", name);
        return api.patch(kind, name, body, type === "merge" || isVersioned(body)) as T;
      });
    },
    delete: (path) => ask(() => api.remove(kindAndName(path).kind, kindAndName(path).name)),
    async *watch<T>(path: string, { signal, query }: CallOptions) {
      const { kind } = kindAndName(path);
      let seen = Number(query?.["resourceVersion"] ?? 0);
      while (!signal.aborted) {
        const next = api.eventsAfter(kind, seen);
        if (next.length > 0) await new Promise<void>((resolve) => void base.after(delayMs(), () => enter(resolve)));
        if (isCutOff) throw unavailable();
        for (const { version, event } of next) {
          seen = version;
          yield event as WatchEvent<T>;
        }
        if (next.length === 0) await changed(signal);
      }
    },
  };
  /** Resolves when the API server has another event, or the connection breaks. */
  const changed = (signal: AbortSignal) =>
    new Promise<void>((resolve) => {
      const wake = () => {
        broken.delete(wake);
        unsubscribe();
        enter(resolve);
      };
      const unsubscribe = api.subscribe(wake);
      broken.add(wake);
      signal.addEventListener("abort", wake, { once: true });
    });
  const breakWatches = () => {
    const waiting = [...broken];
    for (const wake of waiting) wake();
  };
  return {
    clock,
    client,
    state: () => state,
    isCutOff: () => isCutOff,
    stop: () => void (state = "stopped"),
    continue() {
      state = "running";
      for (const fn of held.splice(0)) fn();
    },
    kill: () => void (state = "dead"),
    /** Cuts the process off from the API server, or reconnects it. */
    cutOff(cut: boolean) {
      isCutOff = cut;
      breakWatches();
    },
  };
}
