import type * as cri from "../gen/cri.ts";
import { containerNameLabel, podUidLabel } from "./labels.ts";

/** Sizes of the containers' writable layers, by {@link layerKey}: the newest container of each name. Pure. */
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
