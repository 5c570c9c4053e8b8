import type { NodeConfig } from "../config/node-config.ts";
import { staticSources } from "../kubelet/settings.ts";

/** True for a standalone node: it has static pods, no kubeconfig, and no Pod's service account.
 *  @see https://kubernetes.io/docs/tutorials/cluster-management/kubelet-standalone/ */
export function isStandalone(
  config: Pick<NodeConfig, "kubeconfig" | "bootstrapKubeconfig" | "kubelet">,
  env: Readonly<Record<string, string | undefined>>,
): boolean {
  const hasCredentials = config.kubeconfig || config.bootstrapKubeconfig || env["KUBERNETES_SERVICE_HOST"];
  return !hasCredentials && staticSources(config).length > 0;
}
