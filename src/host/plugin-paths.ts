/** Directory of device plugins' sockets and the node's registration socket, relative to a root directory. */
export const pluginDirectory = "device-plugins";
/** Directory of the PodResources API's socket, relative to a root directory. */
export const podResourcesDirectory = "pod-resources";

export function pluginDirectoryOf(rootDir: string): string {
  return `${rootDir}/${pluginDirectory}`;
}

/** The node's own files in that directory: the registration socket and the checkpoint of allocated devices. */
export const pluginFiles = { socket: "kubelet.sock", checkpoint: "kubelet_internal_checkpoint" } as const;

export function podResourcesDirectoryOf(rootDir: string): string {
  return `${rootDir}/${podResourcesDirectory}`;
}

/** Directory of global mounts of local block volumes' file systems, in a root directory: one directory per volume. */
export function localVolumeDirectoryOf(rootDir: string): string {
  return `${rootDir}/plugins/kubernetes.io/local-volume/mounts`;
}

/** Directory of global bind mounts of local volumes used as raw devices, in a root directory: one directory per volume with
 *  one file per pod. */
export function localDevicesOf(rootDir: string): string {
  return `${rootDir}/plugins/kubernetes.io~local-volume/volumeDevices`;
}

/** The plugin registry: directory of plugins' registration sockets, in a root directory. */
export function pluginRegistryOf(rootDir: string): string {
  return `${rootDir}/plugins_registry`;
}

/** Directory of staged CSI volumes, in a root directory: one directory per driver with one per volume. */
export function stagedDriverVolumesOf(rootDir: string): string {
  return `${rootDir}/plugins/kubernetes.io/csi`;
}

/** Directory of CSI raw block volumes, in a root directory. */
export function driverDevicesOf(rootDir: string): string {
  return `${stagedDriverVolumesOf(rootDir)}/volumeDevices`;
}
