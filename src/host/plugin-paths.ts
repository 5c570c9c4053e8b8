/** Directory of the sockets of device plugins and the node, relative to a root directory. */
export const pluginDirectory = "device-plugins";
/** Directory of the socket on which monitors ask for the devices of pods, relative to a root directory. */
export const podResourcesDirectory = "pod-resources";

export function pluginDirectoryOf(rootDir: string): string {
  return `${rootDir}/${pluginDirectory}`;
}

/** The node's own files there: the registration socket and the checkpoint of allocated devices. */
export const pluginFiles = { socket: "kubelet.sock", checkpoint: "kubelet_internal_checkpoint" } as const;

export function podResourcesDirectoryOf(rootDir: string): string {
  return `${rootDir}/${podResourcesDirectory}`;
}

/** Where file systems of local volumes' devices are mounted for the node, below a root directory: a directory for each volume. */
export function localVolumeDirectoryOf(rootDir: string): string {
  return `${rootDir}/plugins/kubernetes.io/local-volume/mounts`;
}

/** Where local volumes that containers have as devices are bound for the node, below a root directory: a directory for each volume, in it
 *  a file for each pod. */
export function localDevicesOf(rootDir: string): string {
  return `${rootDir}/plugins/kubernetes.io~local-volume/volumeDevices`;
}

/** Directory in which plugins put the sockets that they ask to be registered on, below a root directory. */
export function pluginRegistryOf(rootDir: string): string {
  return `${rootDir}/plugins_registry`;
}

/** Where volumes of storage drivers are staged for the node, below a root directory: a directory for each driver, in it one for each
 *  volume. */
export function stagedDriverVolumesOf(rootDir: string): string {
  return `${rootDir}/plugins/kubernetes.io/csi`;
}

/** Where volumes of storage drivers that containers have as devices lie on the node, below a root directory. */
export function driverDevicesOf(rootDir: string): string {
  return `${stagedDriverVolumesOf(rootDir)}/volumeDevices`;
}
