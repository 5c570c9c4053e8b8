import type { NodeConfig } from "../config/node-config.ts";
import type { Account } from "./identity.ts";
import type { Clock } from "../lib/clock.ts";
import { CodedError, hasCode } from "../lib/errors.ts";
import type { Logger } from "../lib/log.ts";
import { ownAddresses } from "../node/own-addresses.ts";
import type { Service } from "../objects.ts";

/** How long an API server that does not answer is left alone, milliseconds. */
const pauseMs = 2_000;

/** The addresses of the Node at which the kubelet API is reached, as its configuration wants them; none where the machine's own
 *  are right. Those of a Service outlive the Pod. Waits for the API server as long as the signal allows.
 *  @param account of the Pod, which may get the Service.
 *  @throws CodedError not_found, one sentence, for a Service that is not there; failed_precondition for one without an address. */
export async function kubeletAddresses(
  { nodeIPs, kubeletAddress }: Pick<NodeConfig, "nodeIPs" | "kubeletAddress">,
  { account, clock, log }: { readonly account: Account | undefined; readonly clock: Clock; readonly log: Logger },
  signal: AbortSignal,
): Promise<readonly string[]> {
  if (nodeIPs.length > 0 || kubeletAddress.of === "host") return nodeIPs;
  if (kubeletAddress.of === "podIP" || !account) return ownAddresses();
  for (;;) {
    try {
      return await addressesOf(account, kubeletAddress.service, signal);
    } catch (error) {
      if (signal.aborted || !hasCode(error, "unavailable", "deadline_exceeded")) throw error;
      log.warn({ err: error }, "cannot ask for the kubelet API's Service, will try again");
      await clock.sleep(pauseMs, signal);
    }
  }
}

async function addressesOf({ client, namespace }: Account, service: string, signal: AbortSignal): Promise<string[]> {
  const path = `/api/v1/namespaces/${namespace}/services/${encodeURIComponent(service)}`;
  const found = await client.get<Service>(path, { signal }).catch((cause: unknown) => {
    if (!hasCode(cause, "not_found")) throw cause;
    const sentence = `kubeletService ${JSON.stringify(service)} is not in namespace ${namespace}: create it, or name another`;
    throw new CodedError("not_found", sentence, { cause });
  });
  const addresses = (found.spec?.clusterIPs ?? []).filter((address) => address !== "" && address !== "None");
  if (addresses.length > 0) return addresses;
  throw new CodedError(
    "failed_precondition",
    `kubeletService ${JSON.stringify(service)} has no address: it must not be headless`,
  );
}
