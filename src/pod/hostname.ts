import type { Pod } from "../objects.ts";

/** Maximum length of a DNS label, and of the kernel's nodename. */
const maxHostname = 63;
const maxKernelName = 64;

export interface PodHostname {
  readonly hostname: string;
  /** `subdomain.namespace.svc.clusterDomain`, or empty. */
  readonly domain: string;
}

/** A pod's hostname and domain.
 *  @see https://kubernetes.io/docs/concepts/services-networking/dns-pod-service/#pod-hostname-and-subdomain-field */
export function podHostname(pod: Pod, clusterDomain: string): PodHostname {
  const { hostname, hostnameOverride, subdomain } = pod.spec;
  if (hostnameOverride !== undefined) return { hostname: truncate(hostnameOverride), domain: "" };
  const domain = subdomain ? `${subdomain}.${pod.metadata.namespace}.svc.${clusterDomain}` : "";
  return { hostname: truncate(hostname || pod.metadata.name), domain };
}

/** The hostname inside the pod: the FQDN with setHostnameAsFQDN; empty with hostNetwork, which uses the host's own. @throws Error if it
 *  exceeds the kernel's limit. */
export function kernelHostname(pod: Pod, { hostname, domain }: PodHostname): string {
  if (pod.spec.hostNetwork) return "";
  if (!domain || pod.spec.setHostnameAsFQDN !== true) return hostname;
  const fqdn = `${hostname}.${domain}`;
  if (fqdn.length <= maxKernelName) return fqdn;
  throw new Error(
    "failed to construct FQDN from pod hostname and cluster domain, " +
      `FQDN ${fqdn} is too long (${maxKernelName} characters is the max, ${fqdn.length} characters requested)`,
  );
}

function truncate(name: string): string {
  return name.length <= maxHostname ? name : name.slice(0, maxHostname).replace(/[-.]+$/, "");
}

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
