import type { Pod } from "../objects.ts";
import type { Rejection } from "../pipeline.ts";
import { allContainers } from "../pod/containers.ts";
import { appArmorAnnotation } from "../pod/security.ts";

/** Refuses a pod that asks to be confined where nothing can confine it. One that has begun is not looked at again.
 *  @param enabled the target's kernel has AppArmor. @see https://kubernetes.io/docs/tutorials/security/apparmor/ */
export function appArmorEnforced(pod: Pod, enabled: boolean): Rejection | undefined {
  if (enabled || (pod.status?.phase ?? "Pending") !== "Pending" || !asksForProfile(pod)) return undefined;
  return { reason: "AppArmor", message: "Cannot enforce AppArmor: AppArmor is not enabled on the host" };
}

/** Any profile counts, but for one that confines nothing. */
function asksForProfile(pod: Pod): boolean {
  const types = [pod.spec, ...allContainers(pod).map(({ container }) => container)].map(
    ({ securityContext }) => securityContext?.appArmorProfile?.type ?? "Unconfined",
  );
  const annotated = Object.entries(pod.metadata.annotations ?? {}).filter(([key]) =>
    key.startsWith(appArmorAnnotation),
  );
  return types.some((type) => type !== "Unconfined") || annotated.some(([, value]) => value !== "unconfined");
}
