/** Where a node keeps when its last shutdown began and ended: a kubelet's file in its root directory.
 *  (kubelet, nodeshutdown_manager.go) */
export function shutdownRecordFile(rootDir: string): string {
  return `${rootDir}/graceful_node_shutdown_state`;
}
