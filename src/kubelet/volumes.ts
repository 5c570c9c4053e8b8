import { type Service, onAbort } from "../lib/service-group.ts";
import { type Volumes, createVolumes } from "../volumes/volumes.ts";
import type { Cluster, NodeContext, ObservedTarget } from "./deps.ts";

/** Creates the volume manager of a node. */
export function createNodeVolumes(context: NodeContext, cluster: Cluster, observed: ObservedTarget): Volumes {
  const { config, target, metrics, clock, log, hand } = context;
  const { waitForTarget, drivers, agent } = observed;
  const { objects, claims, nodes, tokens, events } = cluster;
  const { volumesInUse, signals } = hand("volumes");
  const { nodeName, rootDir } = config;
  return createVolumes({
    objects,
    claims,
    tokens,
    events,
    drivers,
    nodeName,
    rootDir,
    clock,
    log,
    host: target.host,
    ...(waitForTarget && { waitForTarget }),
    node: nodes.node,
    allocatable: agent.allocatable,
    onVolumesInUse(names) {
      volumesInUse.set(names);
      signals.nodeChanged.send();
    },
    measures: metrics.measures.volumes,
  });
}

/** Retry delay for reading the target's volumes, milliseconds. */
const recoverRetryDelayMs = 5_000;

/** Reconstructs volumes that an earlier process left on the node; stops the volume manager at the end. */
export function volumesService(
  volumes: Volumes,
  { waitForTarget }: ObservedTarget,
  { clock, log }: NodeContext,
): Service {
  const recover = async (signal: AbortSignal) => {
    for (let logged = false; !signal.aborted; logged = true) {
      try {
        await waitForTarget?.(signal);
        return await volumes.recover(signal);
      } catch (err) {
        if (signal.aborted) return;
        if (!logged) log.warn({ err }, "cannot reconstruct the node's volumes; retrying");
        await clock.sleep(recoverRetryDelayMs, signal).catch(() => undefined);
      }
    }
  };
  return {
    name: "volumes",
    run: (signal) => Promise.all([recover(signal), onAbort(signal).then(volumes.stop)]).then(() => undefined),
  };
}
