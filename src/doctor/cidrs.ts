import type { ApiClient } from "../api/client.ts";
import { listAll } from "../api/list-all.ts";
import { type Network, overlaps } from "../host/networks.ts";
import { ignoreNotFound } from "../lib/errors.ts";
import type { Node, ServiceCIDR } from "../objects.ts";
import { type CheckResult, ok, warning } from "./findings.ts";

/** A target's networks for the comparison with the cluster's address ranges. */
export interface TargetNetworks {
  readonly networks: readonly Network[];
  /** True if the target's pods are not in the cluster's network. Addresses of other nodes must then not be on-link on the target. */
  readonly separate: boolean;
}

/** The cluster's address ranges that can be read from objects of the API. */
export interface ClusterRanges {
  /** Ranges of Service addresses; undefined if the API server does not report them. */
  readonly services: readonly string[] | undefined;
  /** Ranges of other nodes' pods. */
  readonly pods: readonly string[];
}

/** Reads the ranges of Services and of other nodes' pods. */
export async function readRanges(
  client: Pick<ApiClient, "list">,
  nodeName: string,
  signal: AbortSignal,
): Promise<ClusterRanges> {
  const path = "/apis/networking.k8s.io/v1/servicecidrs";
  const services = await ignoreNotFound(client.list<ServiceCIDR>(path, { signal }));
  const others = (await listAll<Node>(client, "/api/v1/nodes", {}, signal)).filter(
    ({ metadata }) => metadata.name !== nodeName,
  );
  return {
    services: services?.items?.flatMap(({ spec }) => spec?.cidrs ?? []),
    pods: others.flatMap(({ spec }) => podRanges(spec)),
  };
}

function podRanges(spec: Node["spec"]): readonly string[] {
  return spec?.podCIDRs ?? (spec?.podCIDR ? [spec.podCIDR] : []);
}

/** Compares a target's networks with the cluster's ranges. Pure. */
export function compareRanges({ services, pods }: ClusterRanges, target: TargetNetworks): readonly CheckResult[] {
  const near = target.networks.filter(({ isDirect: isNear }) => isNear);
  const found = [
    ...clashes(services ?? [], "the cluster's Services", target.networks),
    ...(target.separate ? clashes(pods, "other nodes' pods", near) : []),
  ];
  if (found.length > 0) return found;
  const ofServices = services ? `Services ${services.join(", ")}` : "the Services' range is unknown";
  const ofPods = `ranges of other nodes' pods: ${pods.length > 0 ? pods.length : "unknown"}`;
  return [ok(`${ofServices}; ${ofPods}; no network of the target overlaps`)];
}

/** A warning for each network that overlaps with the ranges. */
function clashes(ranges: readonly string[], whose: string, networks: readonly Network[]): readonly CheckResult[] {
  return networks.flatMap(({ cidr, device }) => {
    const [first, ...others] = ranges.filter((range) => overlaps(cidr, range));
    if (first === undefined) return [];
    const more = others.length > 0 ? ` and ${others.length} more` : "";
    const what = `${cidr} (${device}) of the target overlaps with ${first}${more} of ${whose}`;
    const remedy = "traffic for one may go to the other; give the target's network different addresses";
    return [warning(`${what}: ${remedy}`, "PodNetworkOverlaps")];
  });
}
