import { type Service, onAbort } from "../lib/service-group.ts";
import { type Volumes, createVolumes } from "../volumes/volumes.ts";
import type { Cluster, NodeContext, Observed } from "./deps.ts";

/** The volumes of a node's pods. */
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

/** Longest pause between tries to read what volumes the target has, milliseconds. */
const recoverEveryMs = 5_000;

/** Takes up volumes that an earlier process left on the node, and lets go of all at the end. */
export function keptVolumes(volumes: Volumes, { presence }: Observed, { clock, log }: NodeContext): Service {
  const recover = async (signal: AbortSignal) => {
    for (let told = false; !signal.aborted; told = true) {
      try {
        await presence?.(signal);
        return await volumes.recover(signal);
      } catch (err) {
        if (signal.aborted) return;
        if (!told) log.warn({ err }, "volumes that lie on the node cannot be read, will try again");
        await clock.sleep(recoverEveryMs, signal).catch(() => undefined);
      }
    }
  };
  return {
    name: "volumes",
    run: (signal) => Promise.all([recover(signal), onAbort(signal).then(volumes.stop)]).then(() => undefined),
  };
}
