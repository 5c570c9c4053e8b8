/** A kernel parameter as the kernel's namespaces and runtimes name it: with dots between its parts. Written with slashes, the
 *  two change places, since a part may have dots. @see https://kubernetes.io/docs/tasks/administer-cluster/sysctl-cluster/ */
export function sysctlName(name: string): string {
  if (/[./]/.exec(name)?.[0] !== "/") return name;
  return name.replaceAll(/[./]/g, (separator) => (separator === "/" ? "." : "/"));
}
