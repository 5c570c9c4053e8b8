import type { NodeConfig } from "../config/node-config.ts";
import type { Account } from "./identity.ts";
import type { Clock } from "../lib/clock.ts";
import { CodedError, hasCode } from "../lib/errors.ts";
import type { Logger } from "../lib/log.ts";
import type { Service } from "../objects.ts";
import { ownAddresses } from "../node/own-name.ts";

/** Retry delay if the API server does not respond, milliseconds. */
const retryDelayMs = 2_000;

/** Address at which the API server reaches the kubelet API. */
export interface KubeletEndpoint {
  /** IPs of the Node; empty: the machine's own. */
  readonly nodeIPs: readonly string[];
  readonly port: number;
}

/** Returns the configured addresses and port at which the kubelet API is reached. The address of a Service outlives the Pod.
 *  Waits for the API server, unless the signal aborts.
 *  @param account the Pod's service account, which may get the Service.
 *  @throws CodedError not_found, one sentence, if the Service does not exist; failed_precondition if it has no address, or no
 *  port for the kubelet API. */
export async function kubeletEndpoint(
  {
    nodeIPs,
    kubeletAddress,
    kubelet: { port },
  }: Pick<NodeConfig, "nodeIPs" | "kubeletAddress"> & { readonly kubelet: { readonly port: number } },
  { account, clock, log }: { readonly account: Account | undefined; readonly clock: Clock; readonly log: Logger },
  signal: AbortSignal,
): Promise<KubeletEndpoint> {
  if (nodeIPs.length > 0 || kubeletAddress.of === "host") return { nodeIPs, port };
  if (kubeletAddress.of === "podIP" || !account) return { nodeIPs: ownAddresses(), port };
  for (;;) {
    try {
      return endpointOf(await serviceOf(account, kubeletAddress.service, signal), port);
    } catch (error) {
      if (signal.aborted || !hasCode(error, "unavailable", "deadline_exceeded")) throw error;
      log.warn({ err: error }, "cannot get the kubelet API's Service; retrying");
      await clock.sleep(retryDelayMs, signal);
    }
  }
}

async function serviceOf({ client, namespace }: Account, service: string, signal: AbortSignal): Promise<Service> {
  const path = `/api/v1/namespaces/${namespace}/services/${encodeURIComponent(service)}`;
  return client.get<Service>(path, { signal }).catch((cause: unknown) => {
    if (!hasCode(cause, "not_found")) throw cause;
    const sentence = `kubeletService ${JSON.stringify(service)} does not exist in namespace ${namespace}: create it, or use another`;
    throw new CodedError("not_found", sentence, { cause });
  });
}

/** Returns the address and port at which a Service leads to the kubelet API. @param port the port on which graftlet listens. */
function endpointOf({ metadata, spec }: Service, port: number): KubeletEndpoint {
  const refuse = (why: string) =>
    new CodedError("failed_precondition", `kubeletService ${JSON.stringify(metadata.name)} has no ${why}`);
  const nodeIPs = (spec?.clusterIPs ?? []).filter((address) => address !== "" && address !== "None");
  if (nodeIPs.length === 0) throw refuse("address: it must not be headless");
  const servicePort = spec?.ports?.find(
    (one) => (one.targetPort ?? one.port) === port && (one.protocol ?? "TCP") === "TCP",
  );
  if (!servicePort) throw refuse(`port for the kubelet API: add one with targetPort: ${port}`);
  return { nodeIPs, port: servicePort.port };
}
