import type { PodSpec } from "../objects.ts";

/** The user ID that the spec sets for all containers, which owns the pod's service account tokens; undefined if the IDs differ or one is
 *  left to the image. */
export function commonUser(spec: PodSpec): number | undefined {
  const containers = [...(spec.initContainers ?? []), ...spec.containers, ...(spec.ephemeralContainers ?? [])];
  const users = new Set(
    containers.map(({ securityContext }) => securityContext?.runAsUser ?? spec.securityContext?.runAsUser),
  );
  return users.size === 1 ? [...users][0] : undefined;
}
