import type { PodSpec } from "../objects.ts";

/** The user ID that the spec gives every container, or undefined where they differ or one leaves it to its image: the owner of
 *  the pod's service account tokens. */
export function commonUser(spec: PodSpec): number | undefined {
  const containers = [...(spec.initContainers ?? []), ...spec.containers, ...(spec.ephemeralContainers ?? [])];
  const users = new Set(
    containers.map(({ securityContext }) => securityContext?.runAsUser ?? spec.securityContext?.runAsUser),
  );
  return users.size === 1 ? [...users][0] : undefined;
}
