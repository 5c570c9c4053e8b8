import type { Clock } from "../lib/clock.ts";
import { CodedError, hasCode } from "../lib/errors.ts";
import type { Logger } from "../lib/log.ts";
import { onAbort, type Service } from "../lib/service-group.ts";
import type { ConfigMap, Pod, Secret } from "../objects.ts";
import type { ObjectCache, ObjectRegistry } from "../pipeline.ts";
import { referencedObjects } from "../pod/object-references.ts";
import type { ApiClient } from "./client.ts";
import { type ObjectKind, type StoredObject, type WatchedObject, watchObject } from "./watched-object.ts";

export interface ObjectCaches extends ObjectCache, ObjectRegistry, Service {
  /** Calls back when an object that somebody has read changed, appeared or went. @returns what stops that. */
  onChange(listener: (kind: ObjectKind, namespace: string, name: string) => void): () => void;
}

interface Entry {
  /** UIDs of the pods that reference the object. */
  readonly pods: Set<string>;
  readonly watched: WatchedObject;
}

/** Milliseconds that a reader waits for a new watch's first answer before it asks by itself; the kubelet's number. */
const firstAnswerMs = 1_000;

/** Secrets and config maps of registered pods: one watch each, by name, for the Node authorizer allows no other; shared by
 *  the pods that reference it, ended with the last of them, and ended early for an immutable object.
 *  @see https://kubernetes.io/docs/reference/access-authn-authz/node/
 *  @see https://kubernetes.io/docs/concepts/configuration/secret/#secret-immutable */
export function createObjectCaches(deps: { readonly client: ApiClient; readonly clock: Clock; readonly log: Logger }): ObjectCaches {
  const { client, clock } = deps;
  const entries = new Map<string, Entry>();
  const keysOfPod = new Map<string, ReadonlySet<string>>();
  const listeners = new Set<(kind: ObjectKind, namespace: string, name: string) => void>();
  const ending = new Set<Promise<void>>();

  const reference = (key: string, uid: string) => {
    let entry = entries.get(key);
    if (!entry) {
      const [kind, namespace, name] = parts(key);
      const onChange = () => {
        for (const listener of listeners) listener(kind, namespace, name);
      };
      entry = { pods: new Set(), watched: watchObject({ ...deps, path: pathOf(kind, namespace), namespace, name, onChange }) };
      entries.set(key, entry);
    }
    entry.pods.add(uid);
  };
  const release = (key: string, uid: string) => {
    const entry = entries.get(key);
    if (!entry?.pods.delete(uid) || entry.pods.size > 0) return;
    entries.delete(key);
    const ended = entry.watched.stop().finally(() => ending.delete(ended));
    ending.add(ended);
  };
  const setKeys = (uid: string, keys: ReadonlySet<string>) => {
    for (const key of keys) reference(key, uid);
    for (const key of keysOfPod.get(uid) ?? []) if (!keys.has(key)) release(key, uid);
    if (keys.size > 0) keysOfPod.set(uid, keys);
    else keysOfPod.delete(uid);
  };
  const read = async <T extends StoredObject>(kind: ObjectKind, namespace: string, name: string, signal: AbortSignal): Promise<T> => {
    const watched = entries.get(keyOf(kind, namespace, name))?.watched;
    const known = await watched?.read(clock.within(firstAnswerMs, signal));
    if (known) return known as T;
    // Not there, or not known yet: the API server's own answer decides, for a watch may lag behind.
    try {
      const object = await client.get<T>(`${pathOf(kind, namespace)}/${name}`, { signal });
      watched?.handedOut(object);
      return object;
    } catch (error) {
      if (!hasCode(error, "not_found")) throw error;
      watched?.handedOut(undefined);
      throw new CodedError("not_found", `${kind} "${name}" not found`, { cause: error });
    }
  };
  return {
    name: "secrets and config maps",
    secret: (namespace, name, signal) => read<Secret>("secret", namespace, name, signal),
    configMap: (namespace, name, signal) => read<ConfigMap>("configmap", namespace, name, signal),
    register: (pod) => setKeys(pod.metadata.uid, keysOf(pod)),
    unregister: (uid) => setKeys(uid, new Set()),
    onChange(listener) {
      listeners.add(listener);
      return () => void listeners.delete(listener);
    },
    async run(signal) {
      await onAbort(signal);
      for (const uid of [...keysOfPod.keys()]) setKeys(uid, new Set());
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

// None of the three parts can hold a slash.
const keyOf = (kind: ObjectKind, namespace: string, name: string) => `${kind}/${namespace}/${name}`;
const parts = (key: string) => key.split("/") as [ObjectKind, string, string];
const pathOf = (kind: ObjectKind, namespace: string) => `/api/v1/namespaces/${namespace}/${kind}s`;
