import type { Service } from "../lib/service-group.ts";
import { createShutdownManager } from "../shutdown/shutdown.ts";
import type { Cluster, NodeContext, Observed } from "./deps.ts";
import type { Placeholders } from "./placeholders.ts";
import { shutdownSettings } from "./settings.ts";

/** Creates graceful node shutdown, if configured. */
export function watchShutdown(
  { config, target, metrics, clock, log, hand }: NodeContext,
  { events }: Cluster,
  { presence }: Observed,
  placeholders: Placeholders,
): readonly Service[] {
  const settings = shutdownSettings(config);
  if (settings.periods.length === 0) return [];
  const { asked, seen: cache, goingDown, ...columns } = hand("shutdown");
  const pods = { list: () => placeholders.without(asked.list()) };
  const { shutdowns: measures } = metrics.measures;
  const common = { ...settings, ...columns, goingDown, pods, cache, events, measures, clock, log };
  const { host, link } = target;
  return [createShutdownManager({ ...common, host, isRemote: link !== undefined, ...(presence && { presence }) })];
}
