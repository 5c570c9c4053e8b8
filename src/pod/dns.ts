import { isIPv6 } from "node:net";
import { DNSConfig } from "../gen/cri.ts";
import type { Pod } from "../objects.ts";

/** Namespace and name of the cluster's DNS Service, also with CoreDNS. */
export const clusterDnsService = "kube-system/kube-dns";

/** Content of a resolv.conf. */
export interface ResolverConfig {
  readonly servers: readonly string[];
  readonly searches: readonly string[];
  readonly options: readonly string[];
}

export interface DnsInput {
  readonly pod: Pod;
  /** Content of the target's resolver file; undefined if the node has none (`resolvConf: ""`). */
  readonly host: ResolverConfig | undefined;
  /** True if the pod network does not reach the cluster's DNS. */
  readonly isolated?: boolean;
  /** KubeletConfiguration.clusterDNS and clusterDomain. */
  readonly clusterDNS: readonly string[];
  readonly clusterDomain: string;
  /** The target's addresses, which decide the loopback address for "no resolver". */
  readonly hostIPs: readonly string[];
}

export interface DnsWarning {
  readonly reason: "MissingClusterDNS" | "DNSConfigForming";
  /** Message of the pod's event. */
  readonly message: string;
  /** Message of the node's event, if any. */
  readonly nodeMessage?: string;
}

const maxServers = 3;
export const maxSearches = 32;
export const maxSearchChars = 2048;
export const maxDomainChars = 253;

/** A pod's resolv.conf from its DNS policy and dnsConfig, truncated to the resolver's limits.
 *  @see https://kubernetes.io/docs/concepts/services-networking/dns-pod-service/#pod-s-dns-policy */
export function podDns(input: DnsInput) {
  const warnings: DnsWarning[] = [];
  const base = baseConfig(input, warnings);
  const extra = input.pod.spec.dnsConfig;
  const servers = unique([...base.servers, ...(extra?.nameservers ?? [])]);
  const searches = unique([...base.searches, ...(extra?.searches ?? [])]);
  const options = extra ? mergeOptions(base.options, extra.options ?? []) : [...base.options];
  const merged = extra ? { servers, searches, options } : { ...base, options };
  const config = DNSConfig.fromPartial({
    servers: fitServers(merged.servers, warnings),
    searches: fitSearches(merged.searches, warnings),
    options,
  });
  return { config, warnings };
}

function baseConfig(input: DnsInput, warnings: DnsWarning[]): ResolverConfig {
  const { pod, host, clusterDNS, clusterDomain } = input;
  const policy = pod.spec.dnsPolicy ?? "ClusterFirst";
  if (policy === "None") return { servers: [], searches: [], options: [] };
  const asHost = policy === "Default" || (policy === "ClusterFirst" && pod.spec.hostNetwork === true);
  if (!asHost && !input.isolated && clusterDNS.length > 0) {
    const domain = clusterDomain;
    const cluster = domain ? [`${pod.metadata.namespace}.svc.${domain}`, `svc.${domain}`, domain] : [];
    const searches = domain ? unique([...cluster, ...(host?.searches ?? [])]) : (host?.searches ?? []);
    return { servers: clusterDNS, searches, options: ["ndots:5"] };
  }
  if (!asHost) warnings.push(missingClusterDns(pod, input.isolated === true));
  return host ?? loopbackOnly(input.hostIPs);
}

function missingClusterDns(pod: Pod, isolated: boolean): DnsWarning {
  const { name, namespace, uid } = pod.metadata;
  const nodeMessage = isolated
    ? 'The pod network of this node is isolated, so pods with "ClusterFirst" policy cannot reach the cluster DNS. Falling back to "Default" policy.'
    : 'kubelet does not have ClusterDNS IP configured and cannot create Pod using "ClusterFirst" policy. Falling back to "Default" policy.';
  return { reason: "MissingClusterDNS", message: `pod: "${name}_${namespace}(${uid})". ${nodeMessage}`, nodeMessage };
}

/** Without nameservers a resolver queries localhost, which in a pod's network does not answer: lookups are disabled. */
function loopbackOnly(hostIPs: readonly string[]): ResolverConfig {
  const servers = hostIPs.map((ip) => (isIPv6(ip) ? "::1" : "127.0.0.1"));
  return { servers: servers.length > 0 ? servers : ["127.0.0.1"], searches: ["."], options: [] };
}

function mergeOptions(base: readonly string[], extra: readonly { name?: string; value?: string }[]): string[] {
  const merged = new Map(base.map(splitOption));
  for (const { name = "", value = "" } of extra) merged.set(name, value);
  return [...merged].map(([name, value]) => (value ? `${name}:${value}` : name));
}

function splitOption(option: string): [string, string] {
  const at = option.indexOf(":");
  return at < 0 ? [option, ""] : [option.slice(0, at), option.slice(at + 1)];
}

function fitServers(servers: readonly string[], warnings: DnsWarning[]): string[] {
  if (servers.length <= maxServers) return [...servers];
  const kept = servers.slice(0, maxServers);
  const message = `Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: ${kept.join(" ")}`;
  warnings.push({ reason: "DNSConfigForming", message });
  return kept;
}

function fitSearches(searches: readonly string[], warnings: DnsWarning[]): string[] {
  const kept = searches.slice(0, maxSearches).filter((domain) => domain.length <= maxDomainChars);
  while (kept.join(" ").length > maxSearchChars) kept.pop();
  if (kept.length < searches.length) {
    const message = `Search Line limits were exceeded, some search paths have been omitted, the applied search line is: ${kept.join(" ")}`;
    warnings.push({ reason: "DNSConfigForming", message });
  }
  return kept;
}

/** Parses a resolv.conf: nameservers accumulate; the last search line and the last of equal options win.
 *  @throws Error for a nameserver line without an address.
 *  @see https://man7.org/linux/man-pages/man5/resolv.conf.5.html */
export function parseResolvConf(text: string): ResolverConfig {
  const servers: string[] = [];
  const options = new Map<string, string>();
  let searches: string[] = [];
  for (const line of text.split("\n").map((each) => each.trim())) {
    if (line.startsWith("#")) continue;
    const [keyword, ...values] = line.split(/\s+/);
    if (keyword === "nameserver") {
      if (values[0] === undefined) throw new Error("nameserver list is empty ");
      servers.push(values[0]);
    }
    if (keyword === "search")
      searches = values.filter((domain) => domain !== ".").map((domain) => domain.replace(/\.$/, ""));
    if (keyword === "options") for (const option of values) options.set(splitOption(option)[0], option);
  }
  return { servers, searches, options: [...options.values()] };
}

function unique(list: readonly string[]): string[] {
  return [...new Set(list)];
}
