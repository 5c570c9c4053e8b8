import type { Pod } from "../objects.ts";
import type { PodHostname } from "./hostname.ts";

const header = [
  "# Kubernetes-managed hosts file.",
  "127.0.0.1\tlocalhost",
  "::1\tlocalhost ip6-localhost ip6-loopback",
  "fe00::0\tip6-localnet",
  "fe00::0\tip6-mcastprefix",
  "fe00::1\tip6-allnodes",
  "fe00::2\tip6-allrouters",
];

/** The /etc/hosts of a pod with its own network.
 *  @see https://kubernetes.io/docs/tasks/network/customize-hosts-file-for-pods/ */
export function podHostsFile(pod: Pod, podIPs: readonly string[], { hostname, domain }: PodHostname): string {
  const names = domain ? `${hostname}.${domain}\t${hostname}` : hostname;
  return lines([...header, ...podIPs.map((ip) => `${ip}\t${names}`), ...aliases(pod)]);
}

/** The /etc/hosts of a hostNetwork pod. @param hostFile the target's own /etc/hosts. */
export function hostNetworkHostsFile(pod: Pod, hostFile: string): string {
  return `# Kubernetes-managed hosts file (host network).\n${hostFile}${lines(aliases(pod))}`;
}

function aliases(pod: Pod): string[] {
  const entries = pod.spec.hostAliases ?? [];
  if (entries.length === 0) return [];
  return [
    "",
    "# Entries added by HostAliases.",
    ...entries.map(({ ip, hostnames }) => `${ip}\t${(hostnames ?? []).join("\t")}`),
  ];
}

function lines(list: readonly string[]): string {
  return list.map((line) => `${line}\n`).join("");
}
