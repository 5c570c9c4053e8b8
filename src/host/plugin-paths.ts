/** Directory of the sockets of device plugins and the node, below a root directory. */
export function pluginDirectoryOf(rootDir: string): string {
  return `${rootDir}/device-plugins`;
}

/** The node's own files there: the registration socket and the checkpoint of allocated devices. */
export const pluginFiles = { socket: "kubelet.sock", checkpoint: "kubelet_internal_checkpoint" } as const;
