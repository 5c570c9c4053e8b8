import type { ApiClient } from "../api/client.ts";
import { hasCode } from "../lib/errors.ts";
import type { ClockAndLog } from "../lib/log.ts";
import { runPeriodically } from "../lib/periodic.ts";
import type { Runnable } from "../lib/runnables.ts";
import type { Node } from "../objects.ts";
import type { NodeSource } from "../pipeline.ts";
import { type ConfiguredMetadataSource, metadataPatch, taintsPatch } from "./configured-metadata.ts";
import { createFailureLog } from "../lib/retry.ts";

export interface ReconcileDeps extends ClockAndLog {
  readonly client: Pick<ApiClient, "patch">;
  /** Client that writes taints: the NodeRestriction admission plugin forbids a node to change its own after registration. */
  readonly tainter: Pick<ApiClient, "patch">;
  readonly nodes: NodeSource;
  readonly nodeName: string;
  readonly configured: ConfiguredMetadataSource;
  /** Interval between checks of the Node, milliseconds. */
  readonly everyMs: number;
}

/** Interval between checks until the Node is known, milliseconds. */
const unknownNodeIntervalMs = 1_000;

/** Keeps the Node's labels, annotations and taints in line with the configuration: see `configured-metadata.ts`. Taints have their
 *  own writer, so a change takes up to two patches. A refusal is logged once and retried.
 *  @see https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/#noderestriction */
export function createReconcile(deps: ReconcileDeps): Runnable {
  const { nodes, configured, everyMs, clock, log } = deps;
  const metadata = createWriter(deps, "labels and annotations", deps.client);
  const taints = createWriter(deps, "taints", deps.tainter);
  const pauseMs = () => (nodes.node() ? everyMs : unknownNodeIntervalMs);
  const { changed } = configured;
  return runPeriodically({ name: "node-configuration", intervalMs: pauseMs, changed, clock, log }, async (signal) => {
    const node = nodes.node();
    if (!node) return;
    const wanted = configured.current();
    await metadata(metadataPatch(node, wanted), signal);
    await taints(taintsPatch(node, wanted), signal);
  });
}

/** Creates a writer of patches to the Node that logs each reason of a failure once. */
function createWriter({ nodeName, log }: ReconcileDeps, what: string, client: ReconcileDeps["client"]) {
  const failures = createFailureLog(log, "cannot update the Node to match its configuration; retrying");
  return async (patch: object | undefined, signal: AbortSignal): Promise<void> => {
    if (!patch) return;
    try {
      await client.patch<Node>(`/api/v1/nodes/${nodeName}`, { type: "strategic", body: patch }, { signal });
      failures.succeeded();
      log.info({ what }, "updated the Node to match its configuration");
    } catch (error) {
      // The Node was changed meanwhile: the next check sees the new version.
      if (!signal.aborted && !hasCode(error, "conflict", "not_found", "unavailable")) failures.failed(error, { what });
    }
  };
}
