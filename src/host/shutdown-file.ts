/** File with the start and end times of the node's last shutdown, at the kubelet's path in its root directory. (kubelet,
 *  nodeshutdown_manager.go) */
export function shutdownRecordFile(rootDir: string): string {
  return `${rootDir}/graceful_node_shutdown_state`;
}
