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
