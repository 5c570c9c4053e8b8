import type { Pod } from "../objects.ts";
import type { Rejection } from "../pipeline.ts";
import { allContainers } from "../pod/containers.ts";
import { appArmorAnnotation } from "../pod/security.ts";

/** Rejects a pod that requests an AppArmor profile if the target's kernel lacks AppArmor. Pods that have already started are not checked
 *  again.
 *  @param enabled true if the target's kernel has AppArmor. @see https://kubernetes.io/docs/tutorials/security/apparmor/ */
export function appArmorEnforced(pod: Pod, enabled: boolean): Rejection | undefined {
  if (enabled || (pod.status?.phase ?? "Pending") !== "Pending" || !requestsProfile(pod)) return undefined;
  return { reason: "AppArmor", message: "Cannot enforce AppArmor: AppArmor is not enabled on the host" };
}

/** True for any profile except Unconfined. */
function requestsProfile(pod: Pod): boolean {
  const types = [pod.spec, ...allContainers(pod).map(({ container }) => container)].map(
    ({ securityContext }) => securityContext?.appArmorProfile?.type ?? "Unconfined",
  );
  const annotated = Object.entries(pod.metadata.annotations ?? {}).filter(([key]) =>
    key.startsWith(appArmorAnnotation),
  );
  return types.some((type) => type !== "Unconfined") || annotated.some(([, value]) => value !== "unconfined");
}
