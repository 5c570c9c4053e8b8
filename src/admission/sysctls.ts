import type { PodAdmitHandler } from "./admit-attributes.ts";
import { sysctlName } from "../pod/security.ts";

/** Safe sysctls, and the first kernel version that namespaces each; [0, 0] for any kernel.
 *  @see https://kubernetes.io/docs/tasks/administer-cluster/sysctl-cluster/#safe-and-unsafe-sysctls */
const safe: ReadonlyMap<string, readonly [major: number, minor: number]> = new Map([
  ["kernel.shm_rmid_forced", [0, 0]],
  ["net.ipv4.ip_local_port_range", [0, 0]],
  ["net.ipv4.tcp_syncookies", [0, 0]],
  ["net.ipv4.ping_group_range", [0, 0]],
  ["net.ipv4.ip_unprivileged_port_start", [0, 0]],
  ["net.ipv4.ip_local_reserved_ports", [3, 16]],
  ["net.ipv4.tcp_keepalive_time", [4, 5]],
  ["net.ipv4.tcp_fin_timeout", [4, 6]],
  ["net.ipv4.tcp_keepalive_intvl", [4, 5]],
  ["net.ipv4.tcp_keepalive_probes", [4, 5]],
  ["net.ipv4.tcp_rmem", [4, 15]],
  ["net.ipv4.tcp_wmem", [4, 15]],
]);

/** Rejects pods that set sysctls that are neither safe nor allowed, or whose namespace is the host's.
 *  @param allowed KubeletConfiguration.allowedUnsafeSysctls: names, or prefixes ending in `*`. */
export function sysctlsAllowed(allowed: readonly string[]): PodAdmitHandler {
  const names = new Set(allowed.filter((pattern) => !pattern.includes("*")).map(sysctlName));
  const prefixes = allowed.flatMap((pattern) => {
    const [beginning] = sysctlName(pattern).split("*", 1);
    return pattern.includes("*") && beginning !== undefined ? [beginning] : [];
  });
  return ({ pod: { spec }, node }) => {
    const kernel = node.status?.nodeInfo?.kernelVersion ?? "";
    for (const sysctl of spec.securityContext?.sysctls ?? []) {
      const name = sysctlName(sysctl.name);
      const isAllowed = isSafe(name, kernel) || names.has(name) || prefixes.some((start) => name.startsWith(start));
      const why = isAllowed ? whyHostsOwn(name, spec) : "not allowlisted";
      if (why !== undefined)
        return { reason: "SysctlForbidden", message: `forbidden sysctl: ${JSON.stringify(name)} ${why}` };
    }
    return undefined;
  };
}

function isSafe(name: string, kernelVersion: string): boolean {
  const since = safe.get(name);
  const [, major = 0, minor = 0] = (/^(\d+)\.(\d+)/.exec(kernelVersion) ?? []).map(Number);
  return since !== undefined && (major > since[0] || (major === since[0] && minor >= since[1]));
}

/** Why a pod in the host's network or IPC namespace must not set a sysctl of that namespace. */
function whyHostsOwn(
  name: string,
  { hostNetwork, hostIPC }: { hostNetwork?: boolean; hostIPC?: boolean },
): string | undefined {
  const isNet = name.startsWith("net.");
  if (isNet && hostNetwork) return "not allowed with host Net enabled";
  return !isNet && hostIPC ? "not allowed with host IPC enabled" : undefined;
}
