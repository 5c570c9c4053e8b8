import { CodedError, ignoreNotFound } from "../lib/errors.ts";
import type { Pod, Volume } from "../objects.ts";
import type { FileChange, Host } from "../seams/host.ts";
import { podDirectory } from "../host/layout.ts";

/** Directory of a volume of a plugin such as `empty-dir`: `<root>/pods/<uid>/volumes/kubernetes.io~<plugin>/<name>`. */
export function volumeDirectory(rootDir: string, uid: string, plugin: string, name: string): string {
  return `${podDirectory(rootDir, uid)}/volumes/kubernetes.io~${plugin}/${name}`;
}

const privateMode = 0o750;

/** Changes that create a directory inside one of the pod's own directories. The pod's own directories are accessible to the node
 *  only, and are created on first use.
 *  @param part the pod's own directory that contains it. */
export function podSubdirectory(
  rootDir: string,
  uid: string,
  part: "volumes" | "plugins" | "volumeDevices",
  { path, mode }: { readonly path: string; readonly mode: number },
): readonly FileChange[] {
  const own = podDirectory(rootDir, uid);
  return [
    { kind: "mkdir", path: own, mode: privateMode, parents: true },
    { kind: "mkdir", path: `${own}/${part}`, mode: privateMode },
    { kind: "mkdir", path, mode, parents: true },
  ];
}

/** Ensures that a volume's directory, if it exists, is not a symbolic link to somewhere else. @throws failed_precondition. */
export async function checkNoLink(
  { host, fresh = false }: { readonly host: Host; readonly fresh?: boolean },
  path: string,
  signal: AbortSignal,
): Promise<void> {
  if (fresh || (await ignoreNotFound(host.fs.lstat(path, signal)))?.kind !== "symlink") return;
  throw new CodedError("failed_precondition", `${path} is a symbolic link, not the volume's directory`);
}

/** Directory of the `ready` file that marks an emptyDir as created; a kubelet that takes over the node checks it. */
export function emptyDirMarker(rootDir: string, uid: string, name: string): string {
  return `${podDirectory(rootDir, uid)}/plugins/kubernetes.io~empty-dir/${name}`;
}

/** Volumes that some container of the pod mounts or uses as a device. Others are never set up, as in the kubelet; image volumes
 *  are mounted by the runtime. */
export function usedVolumes(pod: Pod): readonly Volume[] {
  const mounts = namesIn(pod, "volumeMounts");
  const devices = namesIn(pod, "volumeDevices");
  return (pod.spec.volumes ?? []).filter(({ name, image }) => !image && (mounts.has(name) || devices.has(name)));
}

/** Names of the volumes that containers mount, or use as devices. */
export function namesIn({ spec }: Pick<Pod, "spec">, use: "volumeMounts" | "volumeDevices"): ReadonlySet<string> {
  const containers = [...spec.containers, ...(spec.initContainers ?? []), ...(spec.ephemeralContainers ?? [])];
  return new Set(containers.flatMap(({ [use]: used }) => used?.map(({ name }) => name) ?? []));
}
