import { CodedError, hasCode } from "../lib/errors.ts";
import type { ClockAndLog } from "../lib/log.ts";
import { onAbort } from "../lib/runnables.ts";
import type { ConfigMap, Pod, Secret, PersistentVolume, PersistentVolumeClaim, ServiceAccount } from "../objects.ts";
import { referencedObjects } from "../pod/object-references.ts";
import type { ApiClient } from "./client.ts";
import type { Claims } from "../volumes/ports.ts";
import type { Clock } from "../lib/clock.ts";
import { createReflector, type Reflector } from "./reflector.ts";
import { retryForbidden } from "./tokens.ts";

type ChangeListener = (kind: ObjectKind, namespace: string, name: string) => void;

export interface ObjectCachesDeps extends ClockAndLog {
  readonly client: ApiClient;
}

export type ObjectCaches = ReturnType<typeof createObjectCaches>;

interface Entry {
  /** UIDs of the pods that reference the object. */
  readonly pods: Set<string>;
  readonly watched: WatchedObject;
}

/** Maximum time that a reader waits for a new watch's first response before it sends its own request, milliseconds; the kubelet's value. */
const firstResponseTimeoutMs = 1_000;

/** Watches the Secrets and ConfigMaps of registered pods: one watch for each object, by name, since the Node authorizer allows no
 *  other. Pods that reference the same object share its watch, which ends with the last of these pods, or earlier if the object
 *  is immutable.
 *  @see https://kubernetes.io/docs/reference/access-authn-authz/node/
 *  @see https://kubernetes.io/docs/concepts/configuration/secret/#secret-immutable */
export function createObjectCaches(deps: ObjectCachesDeps) {
  const { client, clock } = deps;
  const listeners = new Set<ChangeListener>();
  const references = createReferences(deps, (...what) => {
    for (const listener of listeners) listener(...what);
  });
  const read = async <T extends StoredObject>(
    kind: ObjectKind,
    namespace: string,
    name: string,
    signal: AbortSignal,
  ): Promise<T> => {
    const watched = references.watched(keyOf(kind, namespace, name));
    const known = await watched?.read(clock.within(firstResponseTimeoutMs, signal));
    if (known) return known as T;
    // The object is missing or not known yet. Read it from the API server, since a watch may lag behind.
    try {
      const object = await client.get<T>(`${pathOf(kind, namespace)}/${name}`, { signal });
      watched?.recordRead(object);
      return object;
    } catch (error) {
      if (!hasCode(error, "not_found")) throw error;
      watched?.recordRead(undefined);
      throw new CodedError("not_found", `${kind} "${name}" not found`, { cause: error });
    }
  };
  return {
    name: "secrets and config maps",
    secret: (namespace: string, name: string, signal: AbortSignal) => read<Secret>("secret", namespace, name, signal),
    configMap: (namespace: string, name: string, signal: AbortSignal) =>
      read<ConfigMap>("configmap", namespace, name, signal),
    register: (pod: Pod) => references.set(pod.metadata.uid, keysOf(pod)),
    unregister: (uid: string) => references.set(uid, new Set()),
    /** Calls back when an object that was read before changed, appeared or was deleted. @returns a function that unsubscribes. */
    onChange(listener: ChangeListener): () => void {
      listeners.add(listener);
      return () => void listeners.delete(listener);
    },
    async run(signal: AbortSignal) {
      await onAbort(signal);
      await references.stop();
    },
  };
}

/** Tracks the references from pods to objects, and runs the watches that are needed for them. */
function createReferences(deps: ObjectCachesDeps, onChange: ChangeListener) {
  const entries = new Map<string, Entry>();
  const keysOfPod = new Map<string, ReadonlySet<string>>();
  const ending = new Set<Promise<void>>();
  const watch = (key: string): Entry => {
    const [kind, namespace, name] = parts(key);
    const path = pathOf(kind, namespace);
    const watched = watchObject({ ...deps, path, namespace, name, onChange: () => onChange(kind, namespace, name) });
    return { pods: new Set(), watched };
  };
  const reference = (key: string, uid: string) => {
    const entry = entries.get(key) ?? watch(key);
    entries.set(key, entry);
    entry.pods.add(uid);
  };
  const release = (key: string, uid: string) => {
    const entry = entries.get(key);
    if (!entry?.pods.delete(uid) || entry.pods.size > 0) return;
    entries.delete(key);
    const ended = entry.watched.stop().finally(() => ending.delete(ended));
    ending.add(ended);
  };
  /** Sets the objects that a pod references, by key. */
  const set = (uid: string, keys: ReadonlySet<string>) => {
    for (const key of keys) reference(key, uid);
    for (const key of keysOfPod.get(uid) ?? []) if (!keys.has(key)) release(key, uid);
    if (keys.size > 0) keysOfPod.set(uid, keys);
    else keysOfPod.delete(uid);
  };
  return {
    set,
    watched: (key: string) => entries.get(key)?.watched,
    /** Ends every watch. */
    async stop() {
      for (const uid of keysOfPod.keys()) set(uid, new Set());
      await Promise.all(ending);
    },
  };
}

function keysOf(pod: Pod): Set<string> {
  const { namespace } = pod.metadata;
  const { secrets, configMaps } = referencedObjects(pod);
  return new Set([
    ...secrets.map((name) => keyOf("secret", namespace, name)),
    ...configMaps.map((name) => keyOf("configmap", namespace, name)),
  ]);
}

// The parts contain no slash, so the key is unambiguous.
const keyOf = (kind: ObjectKind, namespace: string, name: string) => `${kind}/${namespace}/${name}`;
const parts = (key: string) => key.split("/") as [ObjectKind, string, string];
const pathOf = (kind: ObjectKind, namespace: string) => `/api/v1/namespaces/${namespace}/${kind}s`;

/** Reads PersistentVolumeClaims and PersistentVolumes when a pod needs them, as the kubelet does: a node may only read those of its own
 *  pods, and patch the status of their claims.
 *  @see https://kubernetes.io/docs/reference/access-authn-authz/node/ */
export function createPersistentVolumeClaims({ client }: { readonly client: ApiClient }): Claims {
  const pathOf = (namespace: string, name: string) => `/api/v1/namespaces/${namespace}/persistentvolumeclaims/${name}`;
  return {
    claim: (namespace, name, signal) => client.get<PersistentVolumeClaim>(pathOf(namespace, name), { signal }),
    persistentVolume: (name, signal) => client.get<PersistentVolume>(`/api/v1/persistentvolumes/${name}`, { signal }),
    patchStatus: ({ metadata: { namespace, name } }, body, signal) =>
      client.patch<PersistentVolumeClaim>(`${pathOf(namespace, name)}/status`, { type: "strategic", body }, { signal }),
  };
}

/** Service accounts of the node's pods. */
export type ServiceAccounts = ReturnType<typeof createServiceAccounts>;

/** Reads service accounts on demand, without a cache. */
export function createServiceAccounts({ client, clock }: { readonly client: ApiClient; readonly clock: Clock }) {
  return {
    /** @throws ApiError, such as not_found. */
    serviceAccount: (namespace: string, name: string, signal: AbortSignal) =>
      retryForbidden(clock, signal, () =>
        client.get<ServiceAccount>(`/api/v1/namespaces/${namespace}/serviceaccounts/${name}`, { signal }),
      ),
  };
}

type ObjectKind = "secret" | "configmap";
type StoredObject = Secret | ConfigMap;

/** Watch of one Secret or ConfigMap, by name. */
type WatchedObject = ReturnType<typeof watchObject>;

interface WatchedObjectDeps extends ClockAndLog {
  readonly client: ApiClient;
  readonly path: string;
  readonly namespace: string;
  readonly name: string;
  /** Called when the object differs from the last one that a reader got. */
  readonly onChange: () => void;
}

const absent = "absent";

/** Starts watching immediately; stops when the object turns out to be immutable, and keeps it. */
function watchObject(deps: WatchedObjectDeps) {
  const { namespace, name, onChange } = deps;
  const stop = new AbortController();
  let immutable: StoredObject | undefined;
  let handedOut: string | undefined;

  const current = () => immutable ?? reflector.get(namespace, name);
  const changed = () => {
    const object = current();
    if (object?.immutable) {
      immutable = object;
      stop.abort();
    }
    const version = versionOf(object);
    if (handedOut === undefined || handedOut === version) return;
    handedOut = version;
    onChange();
  };
  const reflector: Reflector<StoredObject> = createReflector<StoredObject>({
    ...deps,
    fieldSelector: `metadata.name=${name}`,
    handler: { replace: changed, changed },
  });
  const ended = reflector.run(stop.signal);
  return {
    /** Returns the watched object; waits for the first response until `signal` aborts. Undefined if the object does not exist or
     *  is not known yet. Never rejects. */
    async read(signal: AbortSignal) {
      if (!reflector.synced()) await reflector.ready(AbortSignal.any([signal, stop.signal])).catch(() => undefined);
      const object = current();
      if (object) handedOut = versionOf(object);
      return object;
    },
    /** Records an object that a reader got by other means, so that the reader is notified when it changes. */
    recordRead(object: StoredObject | undefined) {
      handedOut = versionOf(object);
      // The watch may have shown another version while the value was fetched.
      if (current()) changed();
    },
    /** Ends the watch. */
    stop() {
      stop.abort();
      return ended;
    },
  };
}

function versionOf(object: StoredObject | undefined): string {
  return object ? `${object.metadata.uid} ${object.metadata.resourceVersion}` : absent;
}
