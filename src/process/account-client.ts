import { type ApiClient, createApiClient } from "../api/client.ts";
import { type ServiceAccountAccess, serviceAccount } from "../api/service-account.ts";
import { CodedError } from "../lib/errors.ts";
import type { ClockAndLog } from "../lib/log.ts";
import { graftletVersion } from "../version.ts";

export interface AccountClientDeps extends ClockAndLog {
  readonly env: Readonly<Record<string, string | undefined>>;
  /** The account of a replica outside the cluster; in a Pod, its service account is used. */
  readonly outsideAccount?: ServiceAccountAccess | undefined;
}

/** Opens a client of the API server with the Pod's service account, for work that is not a single node's.
 *  @param what needs the account, for the message. @param requests rate limit of the client's requests.
 *  @throws CodedError failed_precondition outside a Pod. */
export function openAccountClient(
  { env, outsideAccount, clock, log }: AccountClientDeps,
  what: string,
  requests: { readonly qps: number; readonly burst: number },
): { readonly access: ServiceAccountAccess; readonly client: ApiClient & AsyncDisposable } {
  const access = outsideAccount ?? serviceAccount(env);
  if (!access)
    throw new CodedError("failed_precondition", `${what} needs a Pod's service account; run graftlet in a Pod`);
  const userAgent = `graftlet/${graftletVersion}`;
  return { access, client: createApiClient({ access, clock, log, userAgent, ...requests }) };
}
