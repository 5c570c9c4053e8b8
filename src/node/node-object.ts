import type { HostFacts } from "../host/facts.ts";
import type { Image } from "../gen/cri.ts";
import type { Node, NodeStatus, Taint } from "../objects.ts";
import type { ResourceList } from "../pod/resources.ts";
import { type ConfiguredMetadata, configuredRecord } from "./configured-metadata.ts";

export const attachAnnotation = "volumes.kubernetes.io/controller-managed-attach-detach";

/** Addresses of --node-ip, for a cloud controller. */
export const providedAddressesAnnotation = "alpha.kubernetes.io/provided-node-ip";

/** Taint of a new Node until a cloud controller has initialized it.
 *  @see https://kubernetes.io/docs/tasks/administer-cluster/running-cloud-controller/ */
export const uninitializedTaint: Taint = {
  key: "node.cloudprovider.kubernetes.io/uninitialized",
  value: "true",
  effect: "NoSchedule",
};

export interface NodeIdentity {
  readonly nodeName: string;
  /** Labels and taints at registration. */
  readonly labels: Readonly<Record<string, string>>;
  /** Annotations at registration only. */
  readonly annotations: Readonly<Record<string, string>>;
  readonly taints: readonly Taint[];
  /** Metadata that is reconciled after registration; absent if it comes from the command line, which only sets it at registration. */
  readonly configured?: ConfiguredMetadata;
  readonly providerID: string;
}

/** Labels that every node has. @see https://kubernetes.io/docs/reference/node/node-labels/ */
export function defaultLabels(
  nodeName: string,
  { operatingSystem, architecture }: Pick<HostFacts, "operatingSystem" | "architecture">,
): Record<string, string> {
  return {
    "beta.kubernetes.io/arch": architecture,
    "beta.kubernetes.io/os": operatingSystem,
    "kubernetes.io/hostname": nodeName,
    ...systemLabels({ operatingSystem, architecture }),
  };
}

/** Labels for the machine's operating system; a kubelet restores them when they are changed. */
export function systemLabels({
  operatingSystem,
  architecture,
}: Pick<HostFacts, "operatingSystem" | "architecture">): Readonly<Record<string, string>> {
  return { "kubernetes.io/arch": architecture, "kubernetes.io/os": operatingSystem };
}

/** The Node object for registration. */
export function newNode(identity: NodeIdentity, facts: HostFacts, status: NodeStatus): Node {
  return nodeOf(identity, defaultLabels(identity.nodeName, facts), status);
}

/** A Node object with an identity, and additional labels. */
export function nodeOf(
  { nodeName, labels, annotations, taints, providerID, configured }: NodeIdentity,
  others: Readonly<Record<string, string>>,
  status: NodeStatus,
): Node {
  return {
    apiVersion: "v1",
    kind: "Node",
    metadata: {
      name: nodeName,
      labels: { ...others, ...labels },
      annotations: {
        ...annotations,
        ...(configured && { ...configured.annotations, ...configuredRecord(configured) }),
        [attachAnnotation]: "true",
      },
    },
    spec: { ...(providerID && { providerID }), ...(taints.length > 0 && { taints: [...taints] }) },
    status,
  };
}

export interface NodeStatusInput {
  readonly facts: HostFacts;
  readonly addresses: readonly { readonly type: string; readonly address: string }[];
  readonly capacity: ResourceList;
  readonly allocatable: ResourceList;
  readonly port: number;
  /** `containerd://1.6.20`; empty before the runtime has answered. */
  readonly runtimeVersion: string;
  readonly kubeletVersion: string;
  readonly images: NodeStatus["images"];
}

/** Features that schedulers and the API server require of the node for pods that need them, and its WebSocket support: without it,
 *  the API server would translate WebSockets to SPDY. Features declared by an earlier kubelet are removed.
 *  @see https://kubernetes.io/docs/concepts/scheduling-eviction/node-declared-features/ */
const declaredFeatures = [
  "ExtendWebSocketsToKubelet",
  "InPlacePodLevelResourcesVerticalScaling",
  "InPlacePodVerticalScalingInitContainers",
  "RestartAllContainersOnContainerExits",
];

/** A node's status without its conditions and the runtime's features. */
export function nodeStatus(input: NodeStatusInput): NodeStatus {
  const { facts } = input;
  return {
    addresses: input.addresses.map((address) => ({ ...address })),
    capacity: { ...input.capacity },
    allocatable: { ...input.allocatable },
    daemonEndpoints: { kubeletEndpoint: { Port: input.port } },
    nodeInfo: {
      machineID: facts.machineID,
      systemUUID: facts.systemUUID,
      bootID: facts.bootID,
      kernelVersion: facts.kernelVersion,
      osImage: facts.osImage,
      containerRuntimeVersion: input.runtimeVersion,
      kubeletVersion: input.kubeletVersion,
      kubeProxyVersion: "",
      operatingSystem: facts.operatingSystem,
      architecture: facts.architecture,
      ...(facts.swapBytes > 0 && { swap: { capacity: facts.swapBytes } }),
    },
    images: [...(input.images ?? [])],
    declaredFeatures: [...declaredFeatures],
  };
}

const namesPerImage = 5;

/** The largest images, digests before tags. @param most maximum number, -1 for all. */
export function nodeImages(images: readonly Image[], most: number): NonNullable<NodeStatus["images"]> {
  const list = images.map(({ repoDigests, repoTags, size }) => ({
    names: [...repoDigests, ...repoTags].slice(0, namesPerImage),
    sizeBytes: Number(size),
  }));
  const named = list.filter(({ names }) => names.length > 0).sort((a, b) => b.sizeBytes - a.sizeBytes);
  return most < 0 ? named : named.slice(0, most);
}
