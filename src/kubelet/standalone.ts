import type { NodeWatch, ServiceWatch } from "../api/listers.ts";
import type { NodeConfig } from "../config/node-config.ts";
import type { Logger } from "../lib/log.ts";
import type { Reloading } from "../lib/reloading.ts";
import { type Service, onAbort } from "../lib/service-group.ts";
import { staticSources } from "./settings.ts";
import type { EventSink } from "../pipeline.ts";

// Substitutes for cluster objects on a standalone node.

/** True for a standalone node: it has static pods, no kubeconfig, and no Pod's service account.
 *  @see https://kubernetes.io/docs/tutorials/cluster-management/kubelet-standalone/ */
export function isStandalone(
  config: Pick<NodeConfig, "kubeconfig" | "bootstrapKubeconfig" | "kubelet">,
  env: Readonly<Record<string, string | undefined>>,
): boolean {
  const hasCredentials = config.kubeconfig || config.bootstrapKubeconfig || env["KUBERNETES_SERVICE_HOST"];
  return !hasCredentials && staticSources(config).length > 0;
}

/** An event sink that writes events to the log. */
export function loggedEvents(log: Logger): EventSink & Service {
  return {
    name: "events",
    event: ({ kind, namespace, name }, type, reason, message) =>
      log[type === "Warning" ? "warn" : "info"](
        { about: [kind, namespace, name].filter(Boolean).join("/"), reason },
        message,
      ),
    run: onAbort,
  };
}

/** A Node watch without a Node object. */
export const noNode: NodeWatch = {
  name: "no node",
  run: onAbort,
  ready: () => Promise.resolve(),
  synced: () => true,
  node: () => undefined,
  onChange: () => () => undefined,
};

/** A Service watch without Services. */
export const noServices: ServiceWatch = {
  name: "no services",
  run: onAbort,
  list: () => [],
  onChange: () => () => undefined,
};

/** No client CA: client certificates are not trusted. */
export const noClientCA: Reloading<string | undefined> & Service = {
  name: "no client CA",
  run: onAbort,
  current: () => undefined,
  onChange: () => () => undefined,
};
