import type { SliceOwner } from "../api/endpoint-slices.ts";
import { createHash } from "node:crypto";
import type { EndpointSlice, WrittenSlice } from "../objects.ts";
import { nodeLabel } from "../pod/labels.ts";
import type { ServiceEndpoint } from "./service-endpoints.ts";

/** Value of the managed-by label that marks EndpointSlices of graftlet's nodes. */
const sliceManager = "graftlet.dev";
const managerLabel = "endpointslice.kubernetes.io/managed-by";
const serviceLabel = "kubernetes.io/service-name";
export const sliceSelector = `${managerLabel}=${sliceManager}`;

/** Address at which a node's pods are published. */
export interface PublishedAddress {
  /** Address of graftlet. */
  readonly address: string;
  /** The cluster node of that address, if known. In nftables and ipvs mode, kube-proxy hairpins connections of an endpoint to itself only
   *  if the endpoint is on the same node. */
  readonly podNode: string | undefined;
  /** Name of graftlet's node. */
  readonly nodeName: string;
  readonly owner: SliceOwner;
}

/** Builds the slice that publishes a pod for a Service. Ports belong to a slice, so each pod has one slice per Service.
 *  @param at includes the local ports that forward to the pod's, in the same order.
 *  @see https://kubernetes.io/docs/concepts/services-networking/endpoint-slices/#management */
export function buildSlice(
  { service, pod, conditions, ports }: ServiceEndpoint,
  at: PublishedAddress & { readonly ports: readonly number[] },
): WrittenSlice {
  const { name, namespace, uid } = service.metadata;
  const { metadata } = pod;
  const id = createHash("sha256").update(`${uid} ${metadata.uid}`).digest("hex").slice(0, 10);
  return {
    apiVersion: "discovery.k8s.io/v1",
    kind: "EndpointSlice",
    metadata: {
      name: `${name}-graftlet-${id}`,
      namespace,
      labels: { [serviceLabel]: name, [managerLabel]: sliceManager, [nodeLabel]: at.nodeName },
      ownerReferences: [at.owner],
    },
    addressType: "IPv4",
    endpoints: [
      {
        addresses: [at.address],
        conditions,
        ...(at.podNode !== undefined && { nodeName: at.podNode }),
        targetRef: { kind: "Pod", namespace, name: metadata.name, uid: metadata.uid },
      },
    ],
    ports: ports.map(({ name: portName, appProtocol }, index) => ({
      name: portName,
      port: at.ports[index] ?? 0,
      protocol: "TCP",
      ...(appProtocol !== undefined && { appProtocol }),
    })),
  };
}

/** True for a slice that graftlet made for that node. */
export function isSliceOfNode({ metadata }: EndpointSlice, nodeName: string): boolean {
  return metadata.labels?.[nodeLabel] === nodeName;
}

/** Ports that slices publish at that address. */
export function publishedPortsAt(slices: readonly EndpointSlice[], address: string): ReadonlySet<number> {
  const there = slices.filter(({ endpoints }) => endpoints?.some(({ addresses }) => addresses.includes(address)));
  return new Set(there.flatMap(({ ports }) => (ports ?? []).flatMap(({ port }) => port ?? [])));
}

/** True if both have the same content for the same Service and pod. */
export function hasSameContent(one: EndpointSlice | undefined, other: WrittenSlice): boolean {
  return one !== undefined && JSON.stringify(sliceContent(one)) === JSON.stringify(sliceContent(other));
}

function sliceContent({ metadata, addressType, endpoints, ports }: WrittenSlice): unknown {
  const { labels = {} } = metadata;
  return [
    [labels[serviceLabel], labels[nodeLabel], addressType, metadata.ownerReferences?.map(({ uid }) => uid)],
    (endpoints ?? []).map(({ addresses, conditions, nodeName = "", targetRef }) => [
      addresses,
      nodeName,
      [conditions?.ready, conditions?.serving, conditions?.terminating],
      targetRef?.uid,
    ]),
    (ports ?? []).map(({ name, port, protocol, appProtocol }) => [name ?? "", port, protocol, appProtocol]),
  ];
}
