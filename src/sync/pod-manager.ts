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

/** Keeps the pods that the sources want. Mirror pods have no row of their own: each is shown for the static pod of its name. */
export interface PodManager {
  /** Takes over an update of the set of pods. */
  take(update: PodUpdate): void;
  /** Mirror pod of that name, whatever version it shows. */
  mirror(namespace: string, name: string): ShownPod | undefined;
  mirrors(): readonly ShownPod[];
  /** Static pods. */
  statics(): readonly AskedPod[];
}

/** Writes the columns `asked` and `shown`. */
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

/** Tells whether a mirror pod shows this version of a static pod. */
export function isMirrorOf(mirror: Pod, pod: Pod): boolean {
  const shown = mirror.metadata.annotations?.[configMirrorAnnotation];
  return shown !== undefined && shown === pod.metadata.annotations?.[configHashAnnotation];
}
