/** A class whose volumes are made by hand, and bound when a pod is scheduled. */
export const storageClass = {
  apiVersion: "storage.k8s.io/v1",
  kind: "StorageClass",
  metadata: { name: "by-hand" },
  provisioner: "kubernetes.io/no-provisioner",
  volumeBindingMode: "WaitForFirstConsumer",
} as const;

type Source = Readonly<Record<string, unknown>>;

/** A volume of that class, or of none, with what its source and the rest of its spec say. */
export function persistentVolume(name: string, spec: Source, metadata: object = {}): object {
  return {
    apiVersion: "v1",
    kind: "PersistentVolume",
    metadata: { name, ...metadata },
    spec: {
      capacity: { storage: "1Gi" },
      accessModes: ["ReadWriteOnce"],
      persistentVolumeReclaimPolicy: "Retain",
      storageClassName: storageClass.metadata.name,
      ...spec,
    },
  };
}

/** A local volume of a node. */
export function localVolume(
  name: string,
  path: string,
  node: string,
  spec: Source = {},
  metadata: object = {},
): object {
  const expression = { key: "kubernetes.io/hostname", operator: "In", values: [node] };
  const nodeAffinity = { required: { nodeSelectorTerms: [{ matchExpressions: [expression] }] } };
  return persistentVolume(name, { local: { path }, nodeAffinity, ...spec }, metadata);
}

/** Spec of a claim. @param volumeName the volume that it is to have; any of the class unless given. */
export function claimSpec(volumeName?: string, more: object = {}): object {
  return {
    accessModes: ["ReadWriteOnce"],
    storageClassName: storageClass.metadata.name,
    resources: { requests: { storage: "1Gi" } },
    ...(volumeName !== undefined && { volumeName }),
    ...more,
  };
}

/** A claim in the default namespace. */
export function claim(name: string, volumeName?: string, more: object = {}): object {
  const metadata = { name, namespace: "default" };
  return { apiVersion: "v1", kind: "PersistentVolumeClaim", metadata, spec: claimSpec(volumeName, more) };
}

/** A template of claims, as a StatefulSet and a generic ephemeral volume have it. */
export function claimTemplate(name: string): object {
  return { metadata: { name }, spec: claimSpec() };
}

/** What the cluster is told of a storage driver. */
export function csiDriver(name: string, spec: object): object {
  return { apiVersion: "storage.k8s.io/v1", kind: "CSIDriver", metadata: { name }, spec };
}
