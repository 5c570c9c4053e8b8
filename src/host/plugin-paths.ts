/** Where device plugins and the node have their sockets, below a root directory. */
export function pluginDirectoryOf(rootDir: string): string {
  return `${rootDir}/device-plugins`;
}

/** The node's own files there: the socket on which plugins register, and what says who has which devices. */
export const pluginFiles = { socket: "kubelet.sock", checkpoint: "kubelet_internal_checkpoint" } as const;
