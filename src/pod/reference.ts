import type { ObjectReference, PersistentVolume, Pod } from "../objects.ts";
import { allContainers } from "./containers.ts";

/** Namespace and name; only one pod of a full name runs at a time. */
export function podFullName({ metadata: { namespace, name } }: Pod): string {
  return `${namespace}/${name}`;
}

/** The involvedObject of a pod's events. @param fieldPath part of the pod, such as `spec.containers{web}`. */
export function podReference(pod: Pod, fieldPath?: string): ObjectReference {
  const { namespace, name, uid, resourceVersion } = pod.metadata;
  return {
    kind: "Pod",
    apiVersion: "v1",
    namespace,
    name,
    uid,
    ...(resourceVersion && { resourceVersion }),
    ...(fieldPath && { fieldPath }),
  };
}

/** The involvedObject of a container's events; the pod itself if it has no such container. */
export function containerReference(pod: Pod, containerName: string): ObjectReference {
  const found = allContainers(pod).find(({ container }) => container.name === containerName);
  return podReference(pod, found && `spec.${found.kind}{${containerName}}`);
}

/** The involvedObject of the kubelet's node events: without a UID. */
export function nodeReference(nodeName: string): ObjectReference {
  return { kind: "Node", apiVersion: "v1", name: nodeName };
}

/** The involvedObject of a persistent volume's events. */
export function volumeReference({ metadata: { name, uid, resourceVersion } }: PersistentVolume): ObjectReference {
  return {
    kind: "PersistentVolume",
    apiVersion: "v1",
    name,
    ...(uid && { uid }),
    ...(resourceVersion && { resourceVersion }),
  };
}
