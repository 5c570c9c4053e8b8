import { abortError, CodedError, type ErrorCode, codeOf } from "../lib/errors.ts";
import type { ClockAndLog } from "../lib/log.ts";
import { type Runnable, untilAborted } from "../lib/runnables.ts";
import type { ObjectMeta } from "../objects.ts";
import { ApiError, isExpired } from "./api-error.ts";
import type { ApiClient, ObjectList, Query, WatchEvent } from "./client.ts";

/** An object that the API server stores. */
export interface ApiObject {
  metadata: Pick<ObjectMeta, "name" | "namespace" | "uid" | "resourceVersion" | "managedFields">;
}

export interface ReflectorHandler<T> {
  /** Called after each list, with all objects. */
  replace(objects: readonly T[]): void;
  /** Called for each change. An object that is re-created under the same name is first deleted and then added. */
  changed(object: T, type: "added" | "modified" | "deleted"): void;
}

export interface ReflectorOptions<T> extends ClockAndLog {
  readonly client: Pick<ApiClient, "list" | "watch">;
  /** Path of the collection to list and watch, such as `/api/v1/pods`. */
  readonly path: string;
  readonly fieldSelector?: string;
  readonly labelSelector?: string;
  readonly handler?: ReflectorHandler<T>;
  /** Maximum delay after failures before jitter, milliseconds; delays are chosen between this and twice this. */
  readonly maxRetryDelayMs?: number;
}

/** A local copy of some of the API server's objects, maintained by list and watch. */
export interface Reflector<T> extends Runnable {
  /** True once the first list has been delivered. */
  synced(): boolean;
  ready(signal: AbortSignal): Promise<void>;
  /** Returns the object of that name; `namespace` is undefined for cluster-scoped objects. */
  get(namespace: string | undefined, name: string): T | undefined;
  list(): readonly T[];
}

const pageSize = 500;
/** First and maximum retry delay, milliseconds; client-go's values. Delays double from the first to the maximum; each is
 *  multiplied by a random factor from 1 to 2. */
const firstRetryDelayMs = 800;
const maxRefusedDelayMs = 30_000;
/** Maximum delay while the server is unreachable, so that its return is noticed within seconds. A starting server may refuse requests
 *  temporarily; up to this many consecutive refusals are treated as temporary. */
const maxUnreachableDelayMs = 2_500;
const temporaryRefusals = 6;
/** Errors that a retry is unlikely to fix. */
const refusals: readonly ErrorCode[] = [
  "permission_denied",
  "unauthenticated",
  "not_found",
  "invalid_argument",
  "unimplemented",
];
/** Timeout of a page of a list, doubled with each failure: a lost response is requested again. */
const firstPageTimeoutMs = 15_000;
const maxPageTimeoutMs = 60_000;
/** Minimum timeout of a watch, seconds; the actual one is chosen at random between this and twice this. */
const watchSeconds = 300;
/** Time after which a watch that the server did not end is abandoned, milliseconds. */
const watchGraceMs = 30_000;
/** A watch that ends sooner counts as failed, so that a server that is shutting down is not polled in a loop. */
const shortWatchMs = 1_000;

/** Lists, then watches, until the signal aborts. A broken watch resumes from the last version seen; objects are listed again only if the
 *  server no longer has that version.
 *  @see https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes */
export function createReflector<T extends ApiObject>(options: ReflectorOptions<T>): Reflector<T> {
  const { clock, log, path } = options;
  const objects = new Map<string, T>();
  const firstList = Promise.withResolvers<void>();
  let synced = false;
  let stale = true;
  let version: string | undefined;

  const listAll = async (failures: number, signal: AbortSignal) => {
    const pageMs = Math.min(firstPageTimeoutMs * 2 ** failures, maxPageTimeoutMs);
    const from = version === undefined ? "0" : undefined;
    const { items, resourceVersion } = await listPages(options, { from, pageMs }, signal);
    objects.clear();
    for (const item of items) objects.set(keyOf(item), item);
    version = resourceVersion;
    options.handler?.replace(items);
    synced = true;
    stale = false;
    firstList.resolve();
  };
  const watchOnce = async (signal: AbortSignal, onEvent: () => void) => {
    const since = clock.monotonic();
    let events = 0;
    for await (const event of openWatch(options, version ?? "", signal)) {
      events += 1;
      onEvent();
      version = event.object.metadata.resourceVersion ?? version;
      if (event.type !== "BOOKMARK") apply(objects, event, options.handler);
    }
    if (events === 0 && clock.monotonic() - since < shortWatchMs)
      throw new CodedError("unavailable", "the watch ended immediately");
  };
  const cycle: Cycle = async ({ failures, onProgress }, signal) => {
    const listed = stale;
    if (stale) await listAll(failures, signal);
    // A handler may have ended the reflector.
    if (signal.aborted) return;
    const since = clock.monotonic();
    try {
      await watchOnce(signal, onProgress);
    } catch (error) {
      stale = isExpired(error);
      if (!stale || (listed && clock.monotonic() - since < shortWatchMs)) throw error;
      log.debug({ path, version }, "watched resource version is too old; listing again");
    }
  };

  return {
    name: `reflector ${path}`,
    synced: () => synced,
    async ready(signal) {
      await untilAborted(firstList.promise, signal);
    },
    get: (namespace, name) => objects.get(namespace ? `${namespace}/${name}` : name),
    list: () => [...objects.values()],
    run: (signal) => retryCycle(options, cycle, signal),
  };
}

/** Lists if needed, then watches until the watch ends. @param failures number of preceding consecutive failures. */
type Cycle = (so: { readonly failures: number; readonly onProgress: () => void }, signal: AbortSignal) => Promise<void>;

/** Repeats the cycle until the signal aborts, with growing delays while it fails. */
async function retryCycle<T>(
  { clock, log, path, maxRetryDelayMs = maxUnreachableDelayMs }: ReflectorOptions<T>,
  cycle: Cycle,
  signal: AbortSignal,
): Promise<void> {
  let failures = 0;
  let refused = 0;
  const onProgress = () => {
    failures = 0;
    refused = 0;
  };
  while (!signal.aborted) {
    try {
      await cycle({ failures, onProgress }, signal);
      onProgress();
    } catch (err) {
      if (signal.aborted) return;
      log.debug({ err, path, failures }, "list or watch failed; retrying");
      refused = refusals.includes(codeOf(err)) ? refused + 1 : 0;
      const longest = refused > temporaryRefusals ? maxRefusedDelayMs / 2 : maxRetryDelayMs;
      const delay = Math.min(firstRetryDelayMs * 2 ** failures, longest);
      failures += 1;
      const requestedDelayMs = (err instanceof ApiError && err.retryAfterMs) || 0;
      const pause = Math.max(clock.jitter(delay, 2 * delay), Math.min(requestedDelayMs, maxRefusedDelayMs));
      await clock.sleep(pause, signal).catch(() => undefined);
    }
  }
}

/** @param from.from the version to list from; undefined: the newest. */
async function listPages<T extends ApiObject>(
  options: ReflectorOptions<T>,
  from: { readonly from: string | undefined; readonly pageMs: number },
  signal: AbortSignal,
) {
  const { client, clock, path, fieldSelector, labelSelector } = options;
  const query = { fieldSelector, labelSelector, resourceVersion: from.from };
  const items: T[] = [];
  const ask = async (more: Query): Promise<ObjectList<T>> => {
    const page = await client.list<T>(path, { signal: clock.within(from.pageMs, signal), query: more });
    for (const item of page.items ?? []) items.push(withoutManagedFields(item));
    return page;
  };
  try {
    let next: string | undefined;
    do {
      const page = await ask(
        next ? { fieldSelector, labelSelector, limit: pageSize, continue: next } : { ...query, limit: pageSize },
      );
      next = page.metadata?.continue || undefined;
      if (!next) return { items, resourceVersion: page.metadata?.resourceVersion };
    } while (!signal.aborted);
    throw abortError(signal);
  } catch (error) {
    // A continue token may expire for a slow reader: list everything in one response.
    if (!isExpired(error)) throw error;
    items.length = 0;
    const page = await ask({ fieldSelector, labelSelector });
    return { items, resourceVersion: page.metadata?.resourceVersion };
  }
}

async function* openWatch<T extends ApiObject>(
  options: ReflectorOptions<T>,
  resourceVersion: string,
  signal: AbortSignal,
): AsyncGenerator<WatchEvent<T>> {
  const { client, clock, path, fieldSelector, labelSelector } = options;
  const timeoutSeconds = Math.floor(clock.jitter(watchSeconds, 2 * watchSeconds));
  const query = { fieldSelector, labelSelector, resourceVersion, timeoutSeconds, allowWatchBookmarks: true };
  yield* client.watch<T>(path, { signal: clock.within(timeoutSeconds * 1000 + watchGraceMs, signal), query });
}

function apply<T extends ApiObject>(
  objects: Map<string, T>,
  event: WatchEvent<T>,
  handler: ReflectorHandler<T> | undefined,
): void {
  const object = withoutManagedFields(event.object);
  const key = keyOf(object);
  const known = objects.get(key);
  if (event.type === "DELETED") {
    objects.delete(key);
    handler?.changed(object, "deleted");
    return;
  }
  objects.set(key, object);
  if (known && known.metadata.uid !== object.metadata.uid) handler?.changed(known, "deleted");
  handler?.changed(object, known && known.metadata.uid === object.metadata.uid ? "modified" : "added");
}

function keyOf({ metadata }: ApiObject): string {
  return metadata.namespace ? `${metadata.namespace}/${metadata.name}` : (metadata.name ?? "");
}

/** Removes an object's managedFields, to save memory: they are often the larger part of an object, and are never read here. */
export function withoutManagedFields<T extends ApiObject>(object: T): T {
  delete object.metadata.managedFields;
  return object;
}
