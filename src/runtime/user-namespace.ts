import { NamespaceMode, type RuntimeHandler, UserNamespace } from "../gen/cri.ts";
import type { Pod } from "../objects.ts";
import { hasUserNamespace } from "../pod/security.ts";
import type { PodIds, RuntimeClasses } from "./ports.ts";

export interface UserNamespaceDeps {
  readonly runtimeClasses: RuntimeClasses;
  /** The runtime's handlers; undefined if it does not report them. */
  readonly handlers: () => readonly RuntimeHandler[] | undefined;
  readonly ids: PodIds;
}

/** Creates the lookup of pods' user namespaces: the host's, or the pod's own with a range of the target's IDs. It rejects with the
 *  kubelet's error if the pod's runtime handler does not support user namespaces, or there is no range. */
export function createUserNamespaces(
  deps: UserNamespaceDeps,
): (pod: Pod, signal: AbortSignal) => Promise<UserNamespace> {
  return async (pod, signal) => {
    if (!hasUserNamespace(pod)) return UserNamespace.fromPartial({ mode: NamespaceMode.NODE });
    await verifySupport(deps, pod, signal);
    const { first: hostId, length } = await deps.ids.rangeOf(pod, signal);
    const mapping = { hostId, containerId: 0, length };
    return UserNamespace.fromPartial({ mode: NamespaceMode.POD, uids: [mapping], gids: [mapping] });
  };
}

async function verifySupport(
  { runtimeClasses, handlers }: UserNamespaceDeps,
  { spec: { runtimeClassName } }: Pod,
  signal: AbortSignal,
): Promise<void> {
  // The default handler has an empty name.
  const name = runtimeClassName ? await runtimeClasses.handler(runtimeClassName, signal) : "";
  const known = handlers() ?? [];
  const handler = known.find((one) => one.name === name);
  if (handler?.features?.userNamespaces) return;
  const what = name === "" ? "runtime" : `RuntimeClass handler "${name}"`;
  const unknown = known.length > 0 && !handler ? `: the handler "${name}" is not known` : "";
  throw new Error(`can't set \`spec.hostUsers: false\`, ${what} does not support user namespaces${unknown}`);
}
