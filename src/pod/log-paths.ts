import { posix } from "node:path";
import type { Pod } from "../objects.ts";

type PodIdentity = { readonly metadata: Pick<Pod["metadata"], "namespace" | "name" | "uid"> };

/** Maximum length of a file name on ext4, bytes. */
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

/** Absolute path of the link to a container's log for log collectors, truncated to the maximum file name length.
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
