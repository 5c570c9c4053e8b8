import type { Service } from "../lib/service-group.ts";
import { createShutdownManager } from "../shutdown/shutdown.ts";
import type { Cluster, NodeContext, ObservedTarget } from "./deps.ts";
import type { Placeholders } from "./placeholders.ts";
import { shutdownSettings } from "./settings.ts";

/** Creates graceful node shutdown, if configured. */
export function watchShutdown(
  { config, target, metrics, clock, log, hand }: NodeContext,
  { events }: Cluster,
  { waitForTarget }: ObservedTarget,
  placeholders: Placeholders,
): readonly Service[] {
  const settings = shutdownSettings(config);
  if (settings.periods.length === 0) return [];
  const { desired, podCache: cache, shuttingDown, ...columns } = hand("shutdown");
  const pods = { list: () => placeholders.without(desired.list()) };
  const { shutdowns: measures } = metrics.measures;
  const common = { ...settings, ...columns, shuttingDown, pods, cache, events, measures, clock, log };
  const { host, link } = target;
  return [
    createShutdownManager({ ...common, host, isRemote: link !== undefined, ...(waitForTarget && { waitForTarget }) }),
  ];
}
