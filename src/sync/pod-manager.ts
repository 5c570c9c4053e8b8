import type { Pod } from "../objects.ts";
import type { PodUpdate } from "../pipeline.ts";
import { isMirrorPod, isStaticPod } from "../pod/containers.ts";
import { configHashAnnotation, configMirrorAnnotation } from "../pod/labels.ts";
import { podFullName } from "../pod/reference.ts";
import { type DesiredPod, type ApiPod, apiPod } from "../roles.ts";
import type { PodTable } from "../state/pod-table.ts";
import type { ColumnWriter } from "../state/records.ts";

/** Stores the desired pods. Mirror pods have no record of their own: each is the API copy of the static pod of the same name. */
export type PodManager = ReturnType<typeof createPodManager>;

/** Creates the pod manager, the writer of the columns `desired` and `apiPods`. */
export function createPodManager({
  desired,
  apiPods,
}: {
  readonly desired: PodTable["desired"]["writer"];
  readonly apiPods: ColumnWriter<ApiPod>;
}) {
  const mirrors = new Map<string, ApiPod>();
  const updateApiPod = (pod: DesiredPod) => {
    const { uid } = pod.metadata;
    const mirror = mirrors.get(podFullName(pod));
    if (!isStaticPod(pod)) apiPods.set(uid, apiPod(pod));
    else if (mirror && isMirrorOf(mirror, pod)) apiPods.set(uid, mirror);
    else apiPods.delete(uid);
  };
  const updateMirrorPod = (pod: Pod, gone: boolean) => {
    const name = podFullName(pod);
    if (!gone) mirrors.set(name, apiPod(pod));
    else if (mirrors.get(name)?.metadata.uid === pod.metadata.uid) mirrors.delete(name);
    for (const one of desired.list()) if (isStaticPod(one) && podFullName(one) === name) updateApiPod(one);
  };
  return {
    /** Returns the mirror pod of that name, even if it is outdated. */
    mirrorPod: (namespace: string, name: string) => mirrors.get(`${namespace}/${name}`),
    mirrorPods: () => [...mirrors.values()],
    staticPods: () => desired.list().filter(isStaticPod),
    applyUpdate({ op, pods }: PodUpdate) {
      for (const pod of pods) {
        const { uid } = pod.metadata;
        if (isMirrorPod(pod)) updateMirrorPod(pod, op === "REMOVE");
        else if (op === "REMOVE") {
          apiPods.delete(uid);
          desired.delete(uid);
        } else {
          desired.set(uid, pod);
          updateApiPod(pod);
        }
      }
    },
  };
}

/** True if the mirror pod is of this version of the static pod. */
export function isMirrorOf(mirror: Pod, pod: Pod): boolean {
  const mirroredHash = mirror.metadata.annotations?.[configMirrorAnnotation];
  return mirroredHash !== undefined && mirroredHash === pod.metadata.annotations?.[configHashAnnotation];
}
