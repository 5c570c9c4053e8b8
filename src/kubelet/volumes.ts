import { type Service, onAbort } from "../lib/service-group.ts";
import { type Volumes, createVolumes } from "../volumes/volumes.ts";
import type { Cluster, NodeContext, Observed } from "./deps.ts";

/** Creates the volume manager of a node. */
export function createNodeVolumes(context: NodeContext, cluster: Cluster, observed: Observed): Volumes {
  const { config, target, metrics, clock, log, hand } = context;
  const { presence, drivers, agent } = observed;
  const { objects, claims, nodes, tokens, events } = cluster;
  const { inUse, signals } = hand("volumes");
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
    ...(presence && { presence }),
    node: nodes.node,
    allocatable: agent.allocatable,
    inUse(names) {
      inUse.set(names);
      signals.nodeChanged.send();
    },
    measures: metrics.measures.volumes,
  });
}

/** Retry delay for reading the target's volumes, milliseconds. */
const recoverEveryMs = 5_000;

/** Reconstructs volumes that an earlier process left on the node; stops the volume manager at the end. */
export function keptVolumes(volumes: Volumes, { presence }: Observed, { clock, log }: NodeContext): Service {
  const recover = async (signal: AbortSignal) => {
    for (let told = false; !signal.aborted; told = true) {
      try {
        await presence?.(signal);
        return await volumes.recover(signal);
      } catch (err) {
        if (signal.aborted) return;
        if (!told) log.warn({ err }, "cannot reconstruct the node's volumes; retrying");
        await clock.sleep(recoverEveryMs, signal).catch(() => undefined);
      }
    }
  };
  return {
    name: "volumes",
    run: (signal) => Promise.all([recover(signal), onAbort(signal).then(volumes.stop)]).then(() => undefined),
  };
}
