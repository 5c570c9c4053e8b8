import { createHash } from "node:crypto";
import type { EndpointSlice, WrittenSlice } from "../objects.ts";
import { nodeLabel } from "../pod/labels.ts";
import type { ServedEndpoint } from "./served.ts";

/** Value by which the slices of graftlet's nodes are told from others'. */
const sliceManager = "graftlet.dev";
const managerLabel = "endpointslice.kubernetes.io/managed-by";
const serviceLabel = "kubernetes.io/service-name";
export const sliceSelector = `${managerLabel}=${sliceManager}`;

/** The object of the cluster without which the slices mean nothing: they go when it goes. It lies in no namespace, as theirs differ. */
export interface SliceOwner {
  readonly apiVersion: string;
  readonly kind: string;
  readonly name: string;
  readonly uid: string;
}

/** Where a node's pods are reached. */
export interface SlicePlace {
  /** Address here. */
  readonly address: string;
  /** The cluster's node that it is on, where that is known. kube-proxy leads a connection of whoever is an endpoint back to it only where
   *  the endpoint is of its own node, in the modes nftables and ipvs. */
  readonly podNode: string | undefined;
  /** Node that graftlet runs. */
  readonly nodeName: string;
  readonly owner: SliceOwner;
}

/** The slice by which the cluster reaches a pod of a Service: ports belong to a slice, so that each pod has one for each of its Services.
 *  @param at with the ports here that lead to the pod's, in their order.
 *  @see https://kubernetes.io/docs/concepts/services-networking/endpoint-slices/#management */
export function sliceOf(
  { service, pod, conditions, ports }: ServedEndpoint,
  at: SlicePlace & { readonly ports: readonly number[] },
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

/** True for a slice that a graftlet made for that node. */
export function isOfNode({ metadata }: EndpointSlice, nodeName: string): boolean {
  return metadata.labels?.[nodeLabel] === nodeName;
}

/** Ports that slices name at that address. */
export function portsAt(slices: readonly EndpointSlice[], address: string): ReadonlySet<number> {
  const there = slices.filter(({ endpoints }) => endpoints?.some(({ addresses }) => addresses.includes(address)));
  return new Set(there.flatMap(({ ports }) => (ports ?? []).flatMap(({ port }) => port ?? [])));
}

/** True when both say the same of the same Service and pod. */
export function saysTheSame(one: EndpointSlice | undefined, other: WrittenSlice): boolean {
  return one !== undefined && JSON.stringify(sayings(one)) === JSON.stringify(sayings(other));
}

function sayings({ metadata, addressType, endpoints, ports }: WrittenSlice): unknown {
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
