import type { Clock } from "../lib/clock.ts";
import type { Logger } from "../lib/log.ts";
import { throttle } from "../lib/throttle.ts";
import type { HostFs } from "../seams/host.ts";
import { reportChanges, type ReportLimitation } from "../api/limitations.ts";
import type { Redirections } from "./rules.ts";
import { contains, directSubnets } from "../host/addresses.ts";

export interface TunnelLimitationsDeps {
  readonly host: { readonly fs: Pick<HostFs, "readFile"> };
  readonly report: ReportLimitation;
  readonly clock: Pick<Clock, "monotonic" | "after">;
  readonly log: Logger;
}

/** Minimum interval between events about pods that have reached their connection limit, milliseconds. */
const fullReportIntervalMs = 60_000;

/** Reports limitations of a running service tunnel, each once until it changes. */
export function createTunnelLimitations({ host, report, clock, log }: TunnelLimitationsDeps) {
  const reportChange = reportChanges(report);
  const compare = createOverlapCheck(host.fs);
  let fullPod = "";
  const reportFull = throttle(
    () => report("ConnectionsNotForwarded", connectionsRefusedText(fullPod)),
    fullReportIntervalMs,
    clock,
  );
  return {
    /** Reports that a pod has reached its connection limit. @param pod its address. */
    connections(pod: string): void {
      fullPod = pod;
      reportFull();
    },
    /** Compares the requested UDP destinations with those that got a port on the target. */
    datagrams: (wanted: readonly string[], ports: Redirections["udp"]) =>
      reportChange("UDPNotForwarded", datagramsNotForwardedText(wanted, ports)),
    /** Compares the pods' network with the cluster's addresses, in the background. */
    addresses(pods: readonly string[], cluster: readonly string[], signal: AbortSignal): void {
      void compare(pods, cluster, signal).then(
        (overlap) => reportChange("PodNetworkOverlaps", overlap),
        (err: unknown) => log.debug({ err }, "cannot compare the pod network with the cluster's addresses"),
      );
    },
  };
}

/** Event text for a pod whose further connections are refused. */
function connectionsRefusedText(pod: string): string {
  return `further connections from pod ${pod} to Services are refused: the pod has reached its share of the node's connections. Have the pod close idle connections`;
}

/** Event text for destinations for which the target has no port left. */
function datagramsNotForwardedText(wanted: readonly string[], ports: Redirections["udp"]): string | undefined {
  const carried = new Set(ports.map(([to]) => to));
  const [first, ...others] = wanted.filter((to) => !carried.has(to));
  if (first === undefined) return undefined;
  const more = others.length > 0 ? ` and ${others.length} more destinations` : "";
  return `UDP to ${first}${more} is not forwarded: the target has no free port from 600 to 1023. Exclude Services with serviceNamespaces`;
}

/** Describes cluster addresses that are in the pods' own subnet on the target. Pods would look for such addresses on the local
 *  network, where no rule sees the traffic. Pure.
 *  @param routes the target's /proc/net/route.
 *  @param pods addresses of the node's pods.
 *  @param cluster addresses of the cluster. */
export function overlapText(routes: string, pods: readonly string[], cluster: readonly string[]): string | undefined {
  const own = directSubnets(routes).filter((subnet) => pods.some((pod) => contains(subnet, pod)));
  const elsewhere = cluster.filter((address) => !pods.includes(address));
  const [first, ...others] = elsewhere.filter((address) => own.some((subnet) => contains(subnet, address)));
  if (first === undefined) return undefined;
  const more = others.length > 0 ? ` and ${others.length} more` : "";
  return `${first}${more} of the cluster's addresses overlap with the pod network on the target, so pods cannot reach them: give the target's pods another subnet`;
}

/** Compares the pods' network on a target with the cluster's. The routes are read again when a pod's address is in no known subnet.
 *  @throws the target's error when the routes cannot be read. */
function createOverlapCheck(fs: Pick<HostFs, "readFile">) {
  let routes = "";
  return async (
    pods: readonly string[],
    cluster: readonly string[],
    signal: AbortSignal,
  ): Promise<string | undefined> => {
    const known = directSubnets(routes);
    if (!pods.every((pod) => known.some((subnet) => contains(subnet, pod))))
      routes = (await fs.readFile("/proc/net/route", { signal })).toString("latin1");
    return overlapText(routes, pods, cluster);
  };
}
