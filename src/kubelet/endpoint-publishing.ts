import { isIPv4 } from "node:net";
import { createOwnSlices } from "../api/endpoint-slices.ts";
import type { Service } from "../lib/service-group.ts";
import { createServicePublisher } from "../endpoint-publisher/publisher.ts";
import { sliceSelector } from "../endpoint-publisher/slices.ts";
import { ownAddresses } from "../node/own-addresses.ts";
import type { ClusterMeta, Service as ClusterService } from "../objects.ts";
import type { Cluster, NodeContext } from "./deps.ts";
import { limitationReporter } from "./limitation-reporter.ts";

const ownerKind = { apiVersion: "rbac.authorization.k8s.io/v1", kind: "ClusterRole" };

/** Creates the publisher of pod endpoints for targets outside the cluster network, if configured. */
export function createEndpointPublishing(
  context: NodeContext,
  { services, headless, events }: Cluster,
): readonly Service[] {
  const { config, account, target, places, clock, log, hand } = context;
  const { nodeName, endpoints } = config;
  if (!endpoints || !account || !target.network?.tunneled) return [];
  const own = ownAddresses().find((address) => isIPv4(address));
  if (own === undefined) return [];
  const { client } = account;
  const { owner: name, namespaces, podNode } = endpoints;
  const owner = async (signal: AbortSignal) => {
    const path = `/apis/${ownerKind.apiVersion}/clusterroles/${encodeURIComponent(name)}`;
    const { metadata } = await client.get<{ readonly metadata: ClusterMeta }>(path, { signal });
    return { ...ownerKind, name, uid: metadata.uid ?? "" };
  };
  const slices = createOwnSlices({ client, clock, log }, sliceSelector);
  const mayPublish = ({ metadata }: ClusterService) =>
    namespaces.length === 0 || namespaces.includes(metadata.namespace);
  const report = limitationReporter(events, nodeName);
  const common = {
    nodeName,
    own,
    podNode,
    owner,
    mayPublish,
    services,
    headless: headless?.services,
    slices,
    places,
    report,
    clock,
    log,
  };
  const { apiPods, podCache, ...rest } = hand("servicePublisher");
  return [slices, createServicePublisher({ ...rest, shown: apiPods, seen: podCache, ...common, host: target.host })];
}
