import { posix } from "node:path";
import type { Pod } from "../objects.ts";

type PodIdentity = { readonly metadata: Pick<Pod["metadata"], "namespace" | "name" | "uid"> };

/** The longest file name on ext4, bytes. */
const maxFileName = 255;

/** Directory of a pod's logs on the target. @param root KubeletConfiguration.podLogsDir.
 *  @see https://kubernetes.io/docs/concepts/cluster-administration/logging/#log-location-node */
export function podLogDirectory(root: string, { metadata }: PodIdentity): string {
  return posix.join(root, `${metadata.namespace}_${metadata.name}_${metadata.uid}`);
}

/** Path of a container's log below its pod's log directory. */
export function containerLogPath(containerName: string, restartCount: number): string {
  return `${containerName}/${restartCount}.log`;
}

/** Absolute path of the link by which log collectors find a container's log, cut to what a file name may have.
 *  @param directory `/var/log/containers` unless several nodes share the target. (kubelet) */
export function containerLogLink(
  directory: string,
  { metadata }: PodIdentity,
  containerName: string,
  containerId: string,
): string {
  const suffix = ".log";
  const name = `${metadata.name}_${metadata.namespace}_${containerName}-${containerId}`.slice(
    0,
    maxFileName - suffix.length,
  );
  return posix.join(directory, name + suffix);
}
