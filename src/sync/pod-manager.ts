import type { Pod } from "../objects.ts";
import type { PodStore, PodUpdate } from "../pipeline.ts";
import { isMirrorPod, isStaticPod } from "../pod/containers.ts";
import { configHashAnnotation, configMirrorAnnotation } from "../pod/labels.ts";
import { fullName } from "../pod/reference.ts";

/** The pods that the sources want, by UID; the sync loop is its only writer. Mirror pods are no pods of their own: they are kept
 *  beside, by the name that they share with what they show. */
export interface PodManager extends PodStore {
  /** Takes over what an update says of the set of pods. */
  take(update: PodUpdate): void;
  /** The mirror pod of that name, whatever it shows. */
  mirror(namespace: string, name: string): Pod | undefined;
  mirrors(): readonly Pod[];
  /** A wanted pod as the API server has it: a static pod by its mirror pod, once there is one that shows this version of it. */
  shown(uid: string): Pod | undefined;
  /** The static pods. */
  statics(): readonly Pod[];
}

export function createPodManager(): PodManager {
  const pods = new Map<string, Pod>();
  const uids = new Map<string, string>();
  const mirrors = new Map<string, Pod>();
  const byName = (namespace: string, name: string) => pods.get(uids.get(`${namespace}/${name}`) ?? "");
  const takeMirror = (pod: Pod, gone: boolean) => {
    const name = fullName(pod);
    if (!gone) mirrors.set(name, pod);
    else if (mirrors.get(name)?.metadata.uid === pod.metadata.uid) mirrors.delete(name);
  };
  return {
    get: (uid) => pods.get(uid),
    byName,
    list: () => [...pods.values()],
    mirror: (namespace, name) => mirrors.get(`${namespace}/${name}`),
    mirrors: () => [...mirrors.values()],
    statics: () => [...pods.values()].filter(isStaticPod),
    shown(uid) {
      const pod = pods.get(uid);
      if (!pod || !isStaticPod(pod)) return pod;
      const mirror = mirrors.get(fullName(pod));
      return mirror && isMirrorOf(mirror, pod) ? mirror : undefined;
    },
    take({ op, pods: changed }) {
      for (const pod of changed) {
        const { uid } = pod.metadata;
        const name = fullName(pod);
        if (isMirrorPod(pod)) takeMirror(pod, op === "REMOVE");
        else if (op !== "REMOVE") {
          pods.set(uid, pod);
          uids.set(name, uid);
        } else if (pods.delete(uid) && uids.get(name) === uid) {
          uids.delete(name);
          // Another of that name, from another source, comes into its own.
          for (const other of pods.values()) if (fullName(other) === name) uids.set(name, other.metadata.uid);
        }
      }
    },
  };
}

/** Whether a mirror pod shows this version of a static pod. */
export function isMirrorOf(mirror: Pod, pod: Pod): boolean {
  const shown = mirror.metadata.annotations?.[configMirrorAnnotation];
  return shown !== undefined && shown === pod.metadata.annotations?.[configHashAnnotation];
}
