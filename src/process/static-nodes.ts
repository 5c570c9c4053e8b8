import { createApiClient } from "../api/client.ts";
import { serviceAccount } from "../api/service-account.ts";
import { createStaticNodes, type StaticNode } from "../fleet/static-nodes.ts";
import { CodedError } from "../lib/errors.ts";
import type { ClockAndLog } from "../lib/log.ts";
import type { Runnable } from "../lib/runnables.ts";
import { graftletVersion } from "../version.ts";

export interface StaticNodesRunDeps extends ClockAndLog {
  readonly env: Readonly<Record<string, string | undefined>>;
  /** The Helm release. */
  readonly release: string;
  readonly nodes: readonly StaticNode[];
}

/** Rate limit of the account's requests, for all objects together. */
const requests = { qps: 20, burst: 50 };

/** Creates the service that shows the process's nodes as GraftedNodes of the Pod's namespace, with the Pod's service account. The cluster
 *  deletes the objects with that account.
 *  @throws CodedError, one sentence, if there is no service account. */
export function createStaticNodesRun({
  env,
  release,
  nodes,
  clock,
  log,
}: StaticNodesRunDeps): Runnable & AsyncDisposable {
  const access = serviceAccount(env);
  if (!access)
    throw new CodedError("failed_precondition", "nodeObjects needs a Pod's service account; run graftlet in a Pod");
  const client = createApiClient({ access, clock, log, userAgent: `graftlet/${graftletVersion}`, ...requests });
  const account = access.account();
  const owner = account && { apiVersion: "v1", kind: "ServiceAccount", ...account };
  const run = createStaticNodes({ client, namespace: access.namespace(), release, nodes, owner, clock, log });
  return { ...run, [Symbol.asyncDispose]: () => client[Symbol.asyncDispose]() };
}
