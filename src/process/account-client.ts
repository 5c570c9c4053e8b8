import { type ApiClient, type ApiConnections, createApiConnections } from "../api/client.ts";
import { type ServiceAccountAccess, serviceAccount } from "../api/service-account.ts";
import { CodedError } from "../lib/errors.ts";
import type { ClockAndLog } from "../lib/log.ts";
import { graftletVersion } from "../version.ts";

export interface AccountClientDeps extends ClockAndLog {
  readonly env: Readonly<Record<string, string | undefined>>;
  /** The account of a replica outside the cluster; in a Pod, its service account is used. */
  readonly outsideAccount?: ServiceAccountAccess | undefined;
}

/** Rate limit of a client's requests. */
export interface RequestRates {
  readonly qps: number;
  readonly burst: number;
}

export interface AccountClient {
  readonly access: ServiceAccountAccess;
  readonly client: ApiClient & AsyncDisposable;
  /** The client's connections, for further clients. They are closed with the client. */
  readonly connections: Pick<ApiConnections, "client">;
}

/** Opens a client of the API server with the Pod's service account, for work that is not a single node's.
 *  @param what needs the account, for the message. @throws CodedError failed_precondition outside a Pod. */
export function openAccountClient(
  { env, outsideAccount, clock, log }: AccountClientDeps,
  what: string,
  requests: RequestRates,
): AccountClient {
  const access = outsideAccount ?? serviceAccount(env);
  if (!access)
    throw new CodedError("failed_precondition", `${what} needs a Pod's service account; run graftlet in a Pod`);
  const connections = createApiConnections({ access, clock, log });
  const client = connections.client({ userAgent: `graftlet/${graftletVersion}`, ...requests });
  return {
    access,
    connections,
    client: { ...client, [Symbol.asyncDispose]: () => connections[Symbol.asyncDispose]() },
  };
}
