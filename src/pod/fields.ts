import { isIPv4, isIPv6 } from "node:net";
import { goQuote } from "../lib/go-quote.ts";
import type { Container, Pod } from "../objects.ts";
import { quantityMilli, quantityValue } from "./quantity.ts";
import { isHugePages } from "./resources.ts";

/** Downward API values that are not in the pod object. */
export interface FieldContext {
  /** The target's addresses, primary first. */
  readonly hostIPs: readonly string[];
  /** The pod's addresses, as reported by the runtime. */
  readonly podIPs: readonly string[];
}

/** The value of a `fieldRef`: a path such as `metadata.labels['k']` or `status.podIP`.
 *  @throws Error that names the path if the downward API does not support it.
 *  @see https://kubernetes.io/docs/concepts/workloads/pods/downward-api/#downwardapi-fieldRef */
export function podField(pod: Pod, path: string, { hostIPs, podIPs }: FieldContext): string {
  const subscript = /^(metadata\.(?:labels|annotations))\['(.*)'\]$/s.exec(path);
  if (subscript) {
    const from = subscript[1] === "metadata.labels" ? pod.metadata.labels : pod.metadata.annotations;
    return from?.[subscript[2] ?? ""] ?? "";
  }
  switch (path) {
    case "metadata.name":
      return pod.metadata.name;
    case "metadata.namespace":
      return pod.metadata.namespace;
    case "metadata.uid":
      return pod.metadata.uid;
    case "metadata.labels":
      return formatMap(pod.metadata.labels ?? {});
    case "metadata.annotations":
      return formatMap(pod.metadata.annotations ?? {});
    case "spec.nodeName":
      return pod.spec.nodeName ?? "";
    case "spec.serviceAccountName":
      return pod.spec.serviceAccountName ?? "";
    case "status.hostIP":
      return hostIPs[0] ?? "";
    case "status.hostIPs":
      return hostIPs.join(",");
    case "status.podIP":
      return orderPodIPs(podIPs, hostIPs)[0] ?? "";
    case "status.podIPs":
      return orderPodIPs(podIPs, hostIPs).join(",");
    default:
      throw new Error(`unsupported fieldPath: ${path}`);
  }
}

/** One address per family, the family of the node's primary address first (IPv4 if the node has none).
 *  @see https://kubernetes.io/docs/concepts/services-networking/dual-stack/ */
export function orderPodIPs(podIPs: readonly string[], hostIPs: readonly string[]): string[] {
  const first = hostIPs[0] !== undefined && isIPv6(hostIPs[0]) ? [isIPv6, isIPv4] : [isIPv4, isIPv6];
  return first.map((family) => podIPs.find((ip) => family(ip))).filter((ip) => ip !== undefined);
}

/** The value of a `resourceFieldRef`, in units of its divisor, rounded up. A missing limit defaults to the pod-level limit, then to the
 *  node's allocatable.
 *  @param containerName the referring container; the selector's own name takes precedence.
 *  @param allocatable the node's, as quantities by resource name.
 *  @throws Error if there is no such container or resource.
 *  @see https://kubernetes.io/docs/concepts/workloads/pods/downward-api/#downwardapi-resourceFieldRef */
export function resourceField(
  pod: Pod,
  selector: { readonly resource: string; readonly containerName?: string; readonly divisor?: string },
  containerName: string,
  allocatable: Readonly<Record<string, string>>,
): string {
  const name = selector.containerName || containerName;
  const container = [...pod.spec.containers, ...(pod.spec.initContainers ?? [])].find(
    (candidate) => candidate.name === name,
  );
  if (!container) throw new Error(`container ${name} not found`);
  const match = /^(limits|requests)\.(cpu|memory|ephemeral-storage|hugepages-.+)$/.exec(selector.resource);
  const [, list, resource] = match ?? [];
  if (!list || !resource) throw new Error(`unsupported container resource : ${selector.resource}`);
  const quantity = quantityOf(container, list, resource, { ...allocatable, ...podLimits(pod) });
  const measure = resource === "cpu" ? quantityMilli : quantityValue;
  const divisor = selector.divisor !== undefined && quantityMilli(selector.divisor) !== 0 ? selector.divisor : "1";
  return String(Math.ceil(measure(quantity) / measure(divisor)));
}

function quantityOf(
  container: Container,
  list: string,
  resource: string,
  defaults: Readonly<Record<string, string>>,
): string {
  if (list === "requests") return container.resources?.requests?.[resource] ?? "0";
  const limit = container.resources?.limits?.[resource] ?? "0";
  // Huge pages are never overcommitted: the node's allocatable is not a limit for them.
  if (quantityMilli(limit) !== 0 || isHugePages(resource)) return limit;
  return defaults[resource] ?? "0";
}

/** The pod-level CPU and memory limits, if set. */
function podLimits({ spec }: Pod): Readonly<Record<string, string>> {
  const set = Object.entries(spec.resources?.limits ?? {}).filter(
    ([resource, limit]) => ["cpu", "memory"].includes(resource) && quantityMilli(limit) !== 0,
  );
  return Object.fromEntries(set);
}

/** Formats labels or annotations as sorted `key="value"` lines, with values quoted like Go's strconv.Quote. */
export function formatMap(map: Readonly<Record<string, string>>): string {
  return Object.keys(map)
    .sort(byBytes)
    .map((key) => `${key}=${goQuote(map[key] ?? "")}`)
    .join("\n");
}

function byBytes(a: string, b: string): number {
  return Buffer.compare(Buffer.from(a), Buffer.from(b));
}
