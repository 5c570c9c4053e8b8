import type * as k8s from "@kubernetes/client-node";
import type { Clock } from "../lib/clock.ts";
import { CodedError, messageOf, hasCode } from "../lib/errors.ts";
import type { Logger } from "../lib/log.ts";
import { runPeriodically } from "../lib/periodic.ts";
import type { Runnable } from "../lib/runnables.ts";
import { createSingleFlight } from "../lib/single-flight.ts";
import { createSemaphore } from "../lib/semaphore.ts";
import type { Pod, Wire } from "../objects.ts";
import type { ApiClient } from "./client.ts";
import type { TokenSigners } from "./token-signers.ts";

export interface TokenRequest {
  /** Audience of the token; empty for the API server's own. */
  readonly audience: string;
  readonly expirationSeconds: number;
  /** Required UID of the service account; undefined for any. */
  readonly accountUid?: string;
}

export interface Token {
  readonly token: string;
  /** Both times are milliseconds since the epoch; at `refreshAt` a new token is requested. */
  readonly expiresAt: number;
  readonly refreshAt: number;
}

/** Service account tokens bound to a pod, cached while fresh. */
export interface TokenSource {
  token(pod: Pod, request: TokenRequest, signal: AbortSignal): Promise<Token>;
}

interface CachedToken {
  readonly token: string;
  /** Milliseconds since the epoch. */
  readonly expiresAt: number;
  readonly refreshAt: number;
}

const dayMs = 24 * 60 * 60_000;
/** Refreshes of many tokens are spread over this time before they are due. */
const spreadMs = 10_000;
const cleanupIntervalMs = 60_000;
/** Maximum number of concurrent requests: a starting node requests the tokens of all its pods, and each concurrent request needs a
 *  connection. */
const maxConcurrentRequests = 10;

/** Creates the source of service account tokens, each bound to the pod that mounts it. A token is refreshed after four fifths of
 *  its lifetime, or a day; if that fails, it is used until it expires.
 *  @see https://kubernetes.io/docs/reference/access-authn-authz/service-accounts-admin/#bound-service-account-tokens */
export function createTokenSource(deps: {
  readonly client: ApiClient;
  /** Called with each new token. */
  readonly signers: Pick<TokenSigners, "recordValid">;
  readonly clock: Clock;
  readonly log: Logger;
}): TokenSource & Runnable {
  const { client, signers, clock, log } = deps;
  const cached = new Map<string, CachedToken>();
  const once = createSingleFlight<CachedToken>();
  const turn = createSemaphore(maxConcurrentRequests);

  const fetch = async (pod: Pod, request: TokenRequest, signal: AbortSignal): Promise<CachedToken> => {
    const account = pod.spec.serviceAccountName || "default";
    const path = `/api/v1/namespaces/${pod.metadata.namespace}/serviceaccounts/${account}/token`;
    const answer = await retryForbidden(clock, signal, () =>
      client.create<Wire<k8s.AuthenticationV1TokenRequest>>(path, tokenRequest(pod, request), { signal }),
    );
    const token = answer.status?.token;
    const expiresAt = Date.parse(answer.status?.expirationTimestamp ?? "");
    if (!token || Number.isNaN(expiresAt))
      throw new CodedError("unknown", `the API server returned no token for service account ${account}`);
    signers.recordValid(token);
    const lifeMs = (answer.spec?.expirationSeconds ?? request.expirationSeconds) * 1000;
    return { token, expiresAt, refreshAt: refreshTime(clock, expiresAt, lifeMs) };
  };
  const collect = () => {
    for (const [key, { expiresAt }] of cached) if (clock.now() >= expiresAt) cached.delete(key);
  };
  return {
    ...runPeriodically(
      { name: "service account tokens", intervalMs: cleanupIntervalMs, initialDelayMs: cleanupIntervalMs, clock, log },
      collect,
    ),
    async token(pod, request, signal): Promise<Token> {
      const key = JSON.stringify([
        pod.metadata.namespace,
        pod.spec.serviceAccountName,
        pod.metadata.uid,
        request.audience,
        request.expirationSeconds,
        request.accountUid,
      ]);
      const known = cached.get(key);
      if (known && clock.now() < known.refreshAt) return known;
      try {
        const fresh = await once(key, () => turn(() => fetch(pod, request, signal)));
        cached.set(key, fresh);
        return fresh;
      } catch (err) {
        if (signal.aborted || !known || clock.now() >= known.expiresAt) throw fetchError(err);
        log.warn(
          { err, pod: `${pod.metadata.namespace}/${pod.metadata.name}` },
          "cannot refresh service account token; keeping the old one",
        );
        return known;
      }
    },
  };
}

function tokenRequest(pod: Pod, { audience, expirationSeconds, accountUid }: TokenRequest): object {
  const { name, uid } = pod.metadata;
  const boundObjectRef = { apiVersion: "v1", kind: "Pod", name, uid };
  return {
    apiVersion: "authentication.k8s.io/v1",
    kind: "TokenRequest",
    ...(accountUid !== undefined && { metadata: { uid: accountUid } }),
    spec: { audiences: audience === "" ? [] : [audience], expirationSeconds, boundObjectRef },
  };
}

/** @param lifeMs lifetime granted by the server, counted back from `expiresAt` to the time of issue. */
function refreshTime(clock: Clock, expiresAt: number, lifeMs: number): number {
  const early = clock.jitter(0, spreadMs);
  return Math.min(expiresAt - lifeMs * 0.2, expiresAt - lifeMs + dayMs) - early;
}

function fetchError(error: unknown): unknown {
  return error instanceof CodedError
    ? new CodedError(error.code, `failed to fetch token: ${messageOf(error)}`, { cause: error })
    : error;
}

/** Delay before the retry, milliseconds. */
const retryDelayMs = 250;

/** Retries once if forbidden: the Node authorizer may learn of a new pod later than its node.
 *  @see https://kubernetes.io/docs/reference/access-authn-authz/node/ */
export async function retryForbidden<T>(clock: Clock, signal: AbortSignal, ask: () => Promise<T>): Promise<T> {
  try {
    return await ask();
  } catch (error) {
    if (!hasCode(error, "permission_denied")) throw error;
    await clock.sleep(retryDelayMs, signal);
    return ask();
  }
}
