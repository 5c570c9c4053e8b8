import type * as k8s from "@kubernetes/client-node";

/** A Kubernetes object in its JSON form: client-node's types with times as RFC 3339 text. */
export type Wire<T> = T extends Date
  ? string
  : T extends readonly (infer Item)[]
    ? Wire<Item>[]
    : T extends object
      ? { [Key in keyof T]: Wire<T[Key]> }
      : T;

export type ObjectMeta = Wire<k8s.V1ObjectMeta>;

/** Metadata of a namespaced object in the API server. */
export type NamespacedMeta = ObjectMeta & { name: string; namespace: string; uid: string };
/** Metadata of a cluster-scoped object in the API server. */
export type ClusterMeta = ObjectMeta & { name: string };

export type PodSpec = Wire<k8s.V1PodSpec>;
export type PodStatus = Wire<k8s.V1PodStatus>;
export type PodCondition = Wire<k8s.V1PodCondition>;
export type Container = Wire<k8s.V1Container>;
export type EphemeralContainer = Wire<k8s.V1EphemeralContainer>;
export type ContainerStatus = Wire<k8s.V1ContainerStatus>;
export type ContainerState = Wire<k8s.V1ContainerState>;
/** Requests and limits of a container or of a whole pod. */
export type Resources = Wire<Pick<k8s.V1ResourceRequirements, "requests" | "limits">>;
export type EnvVar = Wire<k8s.V1EnvVar>;
export type Probe = Wire<k8s.V1Probe>;
export type Volume = Wire<k8s.V1Volume>;
export type VolumeMount = Wire<k8s.V1VolumeMount>;
export type Toleration = Wire<k8s.V1Toleration>;
export type Taint = Wire<k8s.V1Taint>;
export type NodeStatus = Wire<k8s.V1NodeStatus>;
export type NodeCondition = Wire<k8s.V1NodeCondition>;
export type ObjectReference = Wire<k8s.V1ObjectReference>;

/** A pod from a source, whose identity and spec are always set. */
export type Pod = Omit<Wire<k8s.V1Pod>, "metadata" | "spec"> & { metadata: NamespacedMeta; spec: PodSpec };
export type Node = Omit<Wire<k8s.V1Node>, "metadata"> & { metadata: ClusterMeta };
export type ServiceAccount = Omit<Wire<k8s.V1ServiceAccount>, "metadata"> & { metadata: NamespacedMeta };
export type Secret = Omit<Wire<k8s.V1Secret>, "metadata"> & { metadata: NamespacedMeta };
export type ConfigMap = Omit<Wire<k8s.V1ConfigMap>, "metadata"> & { metadata: NamespacedMeta };
export type PersistentVolumeClaim = Omit<Wire<k8s.V1PersistentVolumeClaim>, "metadata"> & { metadata: NamespacedMeta };
export type PersistentVolume = Omit<Wire<k8s.V1PersistentVolume>, "metadata"> & { metadata: ClusterMeta };
export type ResourceClaim = Omit<Wire<k8s.ResourceV1ResourceClaim>, "metadata"> & { metadata: NamespacedMeta };
export type CSIDriver = Omit<Wire<k8s.V1CSIDriver>, "metadata"> & { metadata: ClusterMeta };
export type CSINode = Omit<Wire<k8s.V1CSINode>, "metadata"> & { metadata: ClusterMeta };
export type VolumeAttachment = Omit<Wire<k8s.V1VolumeAttachment>, "metadata"> & { metadata: ClusterMeta };
export type Service = Omit<Wire<k8s.V1Service>, "metadata"> & { metadata: NamespacedMeta };
export type EndpointSlice = Omit<Wire<k8s.V1EndpointSlice>, "metadata"> & { metadata: NamespacedMeta };
/** A slice to be written, which has no UID yet. */
export type WrittenSlice = Omit<EndpointSlice, "metadata"> & {
  metadata: Omit<NamespacedMeta, "uid"> & { readonly uid?: string };
};
export type RuntimeClass = Omit<Wire<k8s.V1RuntimeClass>, "metadata"> & { metadata: ClusterMeta };
export type ServiceCIDR = Omit<Wire<k8s.V1ServiceCIDR>, "metadata"> & { metadata: ClusterMeta };
export type Lease = Omit<Wire<k8s.V1Lease>, "metadata"> & { metadata: ObjectMeta };
export type CertificateSigningRequest = Omit<Wire<k8s.V1CertificateSigningRequest>, "metadata"> & {
  metadata: ClusterMeta;
};
export type CoreEvent = Wire<k8s.CoreV1Event>;
