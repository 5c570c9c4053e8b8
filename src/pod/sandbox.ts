import { NamespaceMode, PodSandboxState, type PodSandboxStatus } from "../gen/cri.ts";
import type { Pod } from "../objects.ts";
import type { RuntimePod } from "../pipeline.ts";
import { isRunning } from "./runs.ts";

/** True if a pod's newest sandbox can run its containers: the only ready one, in the right network namespace, with an address. */
export function sandboxIsCurrent(pod: Pod, observed: RuntimePod | undefined): boolean {
  const newest = observed?.sandboxes[0];
  if (!observed || newest?.state !== PodSandboxState.SANDBOX_READY) return false;
  if (observed.sandboxes.filter(({ state }) => state === PodSandboxState.SANDBOX_READY).length > 1) return false;
  const hostNetwork = pod.spec.hostNetwork === true;
  const mode = newest.linux?.namespaces?.options?.network ?? NamespaceMode.POD;
  if (mode !== (hostNetwork ? NamespaceMode.NODE : NamespaceMode.POD)) return false;
  return hostNetwork || !newest.network || newest.network.ip !== "";
}

/** True if a sandbox or container of the pod is running. */
export function isAlive({ containers, sandboxes }: RuntimePod): boolean {
  return containers.some(isRunning) || sandboxes.some(({ state }) => state === PodSandboxState.SANDBOX_READY);
}

/** Addresses of a ready sandbox, primary first; empty if it is not ready or has none. */
export function readySandboxIPs(sandbox: PodSandboxStatus | undefined): readonly string[] {
  if (sandbox?.state !== PodSandboxState.SANDBOX_READY || !sandbox.network?.ip) return [];
  return [sandbox.network.ip, ...sandbox.network.additionalIps.map(({ ip }) => ip)];
}
