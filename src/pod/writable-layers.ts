import type * as cri from "../gen/cri.ts";
import { containerNameLabel, podUidLabel } from "./labels.ts";

/** What containers wrote to their own layers, by {@link layerKey}: of each name the newest. Pure. */
export function newestLayers(all: readonly cri.ContainerStats[]): ReadonlyMap<string, cri.FilesystemUsage> {
  const newest = new Map<string, cri.ContainerStats>();
  for (const stats of all) {
    const { labels = {}, metadata } = stats.attributes ?? {};
    const key = layerKey(labels[podUidLabel] ?? "", labels[containerNameLabel] ?? "");
    const known = newest.get(key)?.attributes?.metadata?.attempt ?? -1;
    if ((metadata?.attempt ?? 0) > known) newest.set(key, stats);
  }
  return new Map([...newest].flatMap(([key, { writableLayer }]) => (writableLayer ? [[key, writableLayer]] : [])));
}

export const layerKey = (uid: string, containerName: string): string => `${uid}/${containerName}`;
