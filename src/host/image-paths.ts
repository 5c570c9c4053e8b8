/** A root directory's records of who pulled which image, where a kubelet has them. */
export function pullRecordsDirectory(rootDir: string): string {
  return `${rootDir}/image_manager`;
}
