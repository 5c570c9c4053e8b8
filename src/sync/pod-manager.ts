import type { Pod } from "../objects.ts";
import type { PodUpdate } from "../pipeline.ts";
import { isMirrorPod, isStaticPod } from "../pod/containers.ts";
import { configHashAnnotation, configMirrorAnnotation } from "../pod/labels.ts";
import { fullName } from "../pod/reference.ts";
import { type AskedPod, type ShownPod, shownPod } from "../roles.ts";
import type { PodTable } from "../state/pod-table.ts";
import type { ColumnWriter } from "../state/rows.ts";

export interface PodManagerDeps {
  readonly asked: PodTable["asked"]["writer"];
  readonly shown: ColumnWriter<ShownPod>;
}

/** Stores the desired pods. Mirror pods have no record of their own: each is the API copy of the static pod of the same name. */
export interface PodManager {
  /** Applies an update of the set of pods. */
  take(update: PodUpdate): void;
  /** Mirror pod of that name, even if it is outdated. */
  mirror(namespace: string, name: string): ShownPod | undefined;
  mirrors(): readonly ShownPod[];
  /** Lists the static pods. */
  statics(): readonly AskedPod[];
}

/** Creates the pod manager, the writer of the columns `desired` and `apiPods`. */
export function createPodManager({ asked, shown }: PodManagerDeps): PodManager {
  const mirrors = new Map<string, ShownPod>();
  const show = (pod: AskedPod) => {
    const { uid } = pod.metadata;
    const mirror = mirrors.get(fullName(pod));
    if (!isStaticPod(pod)) shown.set(uid, shownPod(pod));
    else if (mirror && isMirrorOf(mirror, pod)) shown.set(uid, mirror);
    else shown.delete(uid);
  };
  const takeMirror = (pod: Pod, gone: boolean) => {
    const name = fullName(pod);
    if (!gone) mirrors.set(name, shownPod(pod));
    else if (mirrors.get(name)?.metadata.uid === pod.metadata.uid) mirrors.delete(name);
    for (const one of asked.list()) if (isStaticPod(one) && fullName(one) === name) show(one);
  };
  return {
    mirror: (namespace, name) => mirrors.get(`${namespace}/${name}`),
    mirrors: () => [...mirrors.values()],
    statics: () => asked.list().filter(isStaticPod),
    take({ op, pods }) {
      for (const pod of pods) {
        const { uid } = pod.metadata;
        if (isMirrorPod(pod)) takeMirror(pod, op === "REMOVE");
        else if (op === "REMOVE") {
          shown.delete(uid);
          asked.delete(uid);
        } else {
          asked.set(uid, pod);
          show(pod);
        }
      }
    },
  };
}

/** True if the mirror pod is of this version of the static pod. */
export function isMirrorOf(mirror: Pod, pod: Pod): boolean {
  const shown = mirror.metadata.annotations?.[configMirrorAnnotation];
  return shown !== undefined && shown === pod.metadata.annotations?.[configHashAnnotation];
}
