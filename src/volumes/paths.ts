import { CodedError, unlessGone } from "../lib/errors.ts";
import type { Pod, Volume } from "../objects.ts";
import type { FileChange, Host } from "../seams/host.ts";

/** Directory of a pod on the target. */
export function podDirectory(rootDir: string, uid: string): string {
  return `${rootDir}/pods/${uid}`;
}

/** Directory of a volume of a plugin such as `empty-dir`: `<root>/pods/<uid>/volumes/kubernetes.io~<plugin>/<name>`. */
export function volumeDirectory(rootDir: string, uid: string, plugin: string, name: string): string {
  return `${podDirectory(rootDir, uid)}/volumes/kubernetes.io~${plugin}/${name}`;
}

const privateMode = 0o750;

/** Creates a directory below one of a pod's own directories, which only the node enters and which is created on first use.
 *  @param part the pod's own directory that it lies in. */
export function podSubdirectory(
  rootDir: string,
  uid: string,
  part: "volumes" | "plugins" | "volumeDevices",
  { path, mode }: { readonly path: string; readonly mode: number },
): readonly FileChange[] {
  const own = podDirectory(rootDir, uid);
  return [
    { do: "mkdir", path: own, mode: privateMode, parents: true },
    { do: "mkdir", path: `${own}/${part}`, mode: privateMode },
    { do: "mkdir", path, mode, parents: true },
  ];
}

/** Makes sure that a volume's directory, if it is there, is no link: what it leads to is others'. @throws failed_precondition. */
export async function checkNoLink(
  { host, fresh = false }: { readonly host: Host; readonly fresh?: boolean },
  path: string,
  signal: AbortSignal,
): Promise<void> {
  if (fresh || (await unlessGone(host.fs.lstat(path, signal)))?.kind !== "symlink") return;
  throw new CodedError("failed_precondition", `${path} is a link, not the volume's directory`);
}

/** Directory of the file `ready`, which marks a created emptyDir; a kubelet that takes over checks it. */
export function emptyDirMarker(rootDir: string, uid: string, name: string): string {
  return `${podDirectory(rootDir, uid)}/plugins/kubernetes.io~empty-dir/${name}`;
}

/** Volumes that any container of the pod mounts, or has as a device; others are never set up, as in the kubelet. Images are mounted by
 *  the runtime. */
export function usedVolumes(pod: Pod): readonly Volume[] {
  const mounts = namesIn(pod, "volumeMounts");
  const devices = namesIn(pod, "volumeDevices");
  return (pod.spec.volumes ?? []).filter(({ name, image }) => !image && (mounts.has(name) || devices.has(name)));
}

/** Names of volumes that containers mount, or have as devices. */
export function namesIn({ spec }: Pick<Pod, "spec">, use: "volumeMounts" | "volumeDevices"): ReadonlySet<string> {
  const containers = [...spec.containers, ...(spec.initContainers ?? []), ...(spec.ephemeralContainers ?? [])];
  return new Set(containers.flatMap(({ [use]: used }) => used?.map(({ name }) => name) ?? []));
}
