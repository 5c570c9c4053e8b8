import type { Clock } from "../lib/clock.ts";
import type { ServiceAccount } from "../objects.ts";
import type { ApiClient } from "./client.ts";
import { retryForbidden } from "./node-authorizer.ts";

/** Service accounts of the node's pods. */
export interface ServiceAccounts {
  /** @throws ApiError, such as not_found. */
  serviceAccount(namespace: string, name: string, signal: AbortSignal): Promise<ServiceAccount>;
}

/** Reads service accounts on demand, without a cache. */
export function createServiceAccounts({
  client,
  clock,
}: {
  readonly client: ApiClient;
  readonly clock: Clock;
}): ServiceAccounts {
  return {
    serviceAccount: (namespace, name, signal) =>
      retryForbidden(clock, signal, () =>
        client.get<ServiceAccount>(`/api/v1/namespaces/${namespace}/serviceaccounts/${name}`, { signal }),
      ),
  };
}
