/** A sysctl name separated by dots, as runtimes and kernel namespaces name it. In the notation with slashes, dots and slashes are
 *  swapped, since a segment may contain dots. @see https://kubernetes.io/docs/tasks/administer-cluster/sysctl-cluster/ */
export function sysctlName(name: string): string {
  if (/[./]/.exec(name)?.[0] !== "/") return name;
  return name.replaceAll(/[./]/g, (separator) => (separator === "/" ? "." : "/"));
}
