// Paths that graftlet creates in a node's root directory on a target. All except graftlet's own directory are also used by the
// kubelet.

/** Graftlet's own directory in a root directory, with its lock and the record. It exists from before the first pod until after
 *  the last; without it, nothing in the root directory belongs to graftlet. */
export function ownDirectory(rootDir: string): string {
  return `${rootDir}/graftlet`;
}

/** Directory of the records of which process may serve the node, if several may be told to. */
export function fenceDirectory(rootDir: string): string {
  return ownDirectory(rootDir);
}

/** Directory with one directory per pod. */
export function podsDirectory(rootDir: string): string {
  return `${rootDir}/pods`;
}

export function podDirectory(rootDir: string, uid: string): string {
  return `${podsDirectory(rootDir)}/${uid}`;
}

/** Directory of device plugins' sockets and the node's registration socket, relative to a root directory. */
export const pluginDirectory = "device-plugins";
/** Directory of the PodResources API's socket, relative to a root directory. */
export const podResourcesDirectory = "pod-resources";

/** Directory of the Pods API's socket, relative to a root directory. */
export const podsApiDirectory = "pods-api";
/** Name of that socket. */
export const podsApiSocket = "pods-api.sock";

export function podsApiDirectoryOf(rootDir: string): string {
  return `${rootDir}/${podsApiDirectory}`;
}

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

/** Directories of iSCSI volumes in a root directory: for global mounts of file systems, and for global bind mounts of devices. Each
 *  has a directory per interface, with one directory per disk. */
export function iscsiDirectoriesOf(rootDir: string): { readonly mounts: string; readonly devices: string } {
  const mounts = `${rootDir}/plugins/kubernetes.io/iscsi`;
  return { mounts, devices: `${mounts}/volumeDevices` };
}

/** The plugin registry: directory of plugins' registration sockets, in a root directory. */
export function pluginRegistryOf(rootDir: string): string {
  return `${rootDir}/plugins_registry`;
}

/** Directory of staged CSI volumes, in a root directory: one directory per driver with one per volume. */
export function csiPluginDirectoryOf(rootDir: string): string {
  return `${rootDir}/plugins/kubernetes.io/csi`;
}

/** Directory of CSI raw block volumes, in a root directory. */
export function csiVolumeDevicesOf(rootDir: string): string {
  return `${csiPluginDirectoryOf(rootDir)}/volumeDevices`;
}

/** Directory of the image pull records in a root directory, at the kubelet's path. */
export function pullRecordsDirectory(rootDir: string): string {
  return `${rootDir}/image_manager`;
}

/** File with the start and end times of the node's last shutdown, at the kubelet's path in its root directory. (kubelet,
 *  nodeshutdown_manager.go) */
export function shutdownRecordFile(rootDir: string): string {
  return `${rootDir}/graceful_node_shutdown_state`;
}

/** A kubelet's checkpoints of allocated and of actuated resources. */
export function resourceCheckpoints(rootDir: string) {
  return { allocated: `${rootDir}/allocated_pods_state`, actuated: `${rootDir}/actuated_pods_state` };
}

/** Checkpoint of the ResourceClaims that pods use, relative to a root directory: the kubelet's. */
export const claimCheckpoint = "dra_manager_state";

/** Checkpoints of exclusive CPUs and of memory on NUMA nodes, relative to a root directory: the kubelet's. */
export const managerCheckpoints = { cpus: "cpu_manager_state", memory: "memory_manager_state" } as const;

/** Files with the state of a resource manager. */
export interface StateFiles {
  readonly current: string;
  /** Path of the file before graftlet 0.2. */
  readonly former: string;
}

export function stateFilesOf(rootDir: string, manager: keyof typeof managerCheckpoints): StateFiles {
  return { current: `${rootDir}/${managerCheckpoints[manager]}`, former: `${ownDirectory(rootDir)}/${manager}.json` };
}
