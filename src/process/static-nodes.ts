import { createStaticNodes, type StaticNode } from "../fleet/static-nodes.ts";
import type { ClockAndLog } from "../lib/log.ts";
import type { Runnable } from "../lib/runnables.ts";
import { openAccountClient } from "./account-client.ts";

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
 *  @throws CodedError if there is no service account. */
export function createStaticNodesRun({
  env,
  release,
  nodes,
  clock,
  log,
}: StaticNodesRunDeps): Runnable & AsyncDisposable & Pick<ReturnType<typeof createStaticNodes>, "nodes"> {
  const { access, client } = openAccountClient({ env, clock, log }, "nodeObjects", requests);
  const account = access.account();
  const owner = account && { apiVersion: "v1", kind: "ServiceAccount", ...account };
  const run = createStaticNodes({ client, namespace: access.namespace(), release, nodes, owner, clock, log });
  return { ...run, [Symbol.asyncDispose]: () => client[Symbol.asyncDispose]() };
}
