import type { ClockAndLog } from "../lib/log.ts";
import type { ConfigMap, Secret } from "../objects.ts";
import type { ApiClient } from "./client.ts";
import { createReflector, type Reflector } from "./reflector.ts";

export type ObjectKind = "secret" | "configmap";
export type StoredObject = Secret | ConfigMap;

/** One secret or config map, watched by name. */
export type WatchedObject = ReturnType<typeof watchObject>;

export interface WatchedObjectDeps extends ClockAndLog {
  readonly client: ApiClient;
  /** Path of the collection. */
  readonly path: string;
  readonly namespace: string;
  readonly name: string;
  /** Called when the object differs from the last one that a reader got. */
  readonly onChange: () => void;
}

const absent = "absent";

/** Starts watching immediately; stops when the object turns out to be immutable, and keeps it. */
export function watchObject(deps: WatchedObjectDeps) {
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
    /** The watched state: waits for the first response until `signal` aborts. Undefined if the object does not exist or is not known yet.
     *  Never rejects. */
    async read(signal: AbortSignal) {
      if (!reflector.synced()) await reflector.ready(AbortSignal.any([signal, stop.signal])).catch(() => undefined);
      const object = current();
      if (object) handedOut = versionOf(object);
      return object;
    },
    /** Records a value that a reader got elsewhere, so that the reader is notified when it changes. */
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
