import { posix } from "node:path";
import type { Pod, Volume } from "../objects.ts";
import { allContainers } from "./containers.ts";
import { podLogDirectory } from "./log-paths.ts";
import type * as cri from "../gen/cri.ts";
import { containerNameLabel, podUidLabel } from "./labels.ts";

/** Paths on the target of the files that the node creates for a pod, in addition to its volumes. @param roots the target's root directory,
 *  and KubeletConfiguration.podLogsDir. */
export function ephemeralFiles(
  pod: Pick<Pod, "metadata" | "spec">,
  roots: { readonly rootDir: string; readonly podLogsDir: string },
) {
  const logs = podLogDirectory(roots.podLogsDir, pod);
  return {
    /** Log directories by container. */
    logs: new Map(allContainers(pod).map(({ container: { name } }) => [name, posix.join(logs, name)])),
    hostsFile: posix.join(roots.rootDir, "pods", pod.metadata.uid, "etc-hosts"),
  };
}

/** True if a volume's content counts as the pod's ephemeral storage.
 *  @see https://kubernetes.io/docs/concepts/storage/ephemeral-storage/ */
export function isEphemeral({ emptyDir, configMap }: Volume): boolean {
  return configMap !== undefined || (emptyDir !== undefined && !emptyDir.medium);
}

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
