/** Directory of the image pull records in a root directory, at the kubelet's path. */
export function pullRecordsDirectory(rootDir: string): string {
  return `${rootDir}/image_manager`;
}
