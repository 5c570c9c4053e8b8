import { createAccessReview } from "../api/access.ts";
import { createTokenSigners } from "../api/token-signers.ts";
import { makeSelfSigned } from "../certificates/self-signed.ts";
import type { ClockAndLog } from "../lib/log.ts";
import type { Runnable } from "../lib/runnables.ts";
import { createGraftedNodeMetrics, type ObservedObjects } from "../metrics/grafted-nodes.ts";
import { ownAddresses } from "../node/own-name.ts";
import { createMetricsServer } from "../server/metrics-server.ts";
import { boundedAccess, boundedTokens, cachedAuthenticator, cachedAuthorizer } from "../server/review-cache.ts";
import { openAccountClient } from "./account-client.ts";

export interface ObjectsMetricsDeps extends ClockAndLog {
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly endpoint: { readonly address: string; readonly port: number };
  readonly objects: ObservedObjects;
}

/** Rate limit of the account's requests apart from reviews, which have limits of their own. */
const requests = { qps: 5, burst: 10 };
/** Lifetimes of cached reviews, milliseconds: as by default in a KubeletConfiguration. */
const lifetimes = { tokenMs: 120_000, allowedMs: 300_000, deniedMs: 30_000 };
/** No node has an empty name: callers need permission for all nodes. */
const allNodes = "";

/** Creates the server of the metrics of a process's GraftedNodes and pools. Its certificate is self-signed, and the Pod's service account
 *  asks the API server who callers are, and whether they may `get` `nodes/metrics`.
 *  @throws CodedError if there is no service account. */
export async function createObjectsMetrics({
  env,
  endpoint,
  objects,
  clock,
  log,
}: ObjectsMetricsDeps): Promise<Runnable & AsyncDisposable> {
  const { client } = openAccountClient({ env, clock, log }, "metricsPort", requests);
  const { text, reviews: measures, tokenCache } = createGraftedNodeMetrics(objects, clock);
  const unlimited = client.limited(undefined);
  const reviews = createAccessReview({ client: unlimited, clock, nodeName: allNodes, measures });
  const tokens = { byToken: boundedTokens(reviews, createTokenSigners(clock), clock) };
  const server = createMetricsServer({
    at: { ...endpoint, setting: "metricsPort" },
    path: "/metrics/objects",
    certificate: await makeSelfSigned("graftlet", ownAddresses(), clock.now()),
    authenticator: cachedAuthenticator(tokens, clock, lifetimes.tokenMs, tokenCache),
    authorizer: cachedAuthorizer({ allowed: boundedAccess(reviews, clock) }, clock, lifetimes),
    text,
    clock,
    log,
  });
  return { ...server, [Symbol.asyncDispose]: () => client[Symbol.asyncDispose]() };
}
