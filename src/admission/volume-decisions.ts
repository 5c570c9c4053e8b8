import type * as k8s from "@kubernetes/client-node";
import type { Wire } from "../objects.ts";
import { type Decisions, eachOf, fieldsOf, held, heldWhen, type Unserved } from "./decisions.ts";

type Fields<Type> = Decisions<Wire<Type>>;

const noPlugin = "no volume plugin matched";

/** Even an empty source (`flexVolume: {}`) requests a volume. */
const otherType = heldWhen(() => true, noPlugin);

const emptyDirFields: Fields<k8s.V1EmptyDirVolumeSource> = {
  medium: "served",
  sizeLimit: "served",
};

const imageFields: Fields<k8s.V1ImageVolumeSource> = { pullPolicy: "served", reference: "served" };

export const projection: Fields<k8s.V1VolumeProjection> = {
  clusterTrustBundle: held("trust bundles are not supported yet"),
  configMap: "served",
  downwardAPI: "served",
  podCertificate: held("pod certificates are not supported yet"),
  secret: "served",
  serviceAccountToken: "served",
};

const projected: Fields<k8s.V1ProjectedVolumeSource> = { defaultMode: "served", sources: eachOf(fieldsOf(projection)) };

export const volume: Fields<k8s.V1Volume> = {
  awsElasticBlockStore: otherType,
  azureDisk: otherType,
  azureFile: otherType,
  cephfs: otherType,
  cinder: otherType,
  configMap: "served",
  csi: "served",
  downwardAPI: "served",
  emptyDir: fieldsOf(emptyDirFields),
  ephemeral: "served",
  fc: otherType,
  flexVolume: otherType,
  flocker: otherType,
  gcePersistentDisk: otherType,
  gitRepo: otherType,
  glusterfs: otherType,
  hostPath: "served",
  image: fieldsOf(imageFields),
  iscsi: otherType,
  name: "served",
  nfs: "served",
  persistentVolumeClaim: "served",
  photonPersistentDisk: otherType,
  portworxVolume: otherType,
  projected: fieldsOf(projected),
  quobyte: otherType,
  rbd: otherType,
  scaleIO: otherType,
  secret: "served",
  storageos: otherType,
  vsphereVolume: otherType,
};

/** Unsupported fields of a volume; an unsupported type is reported with the volume's name. */
export function unservedInVolume(given: Wire<k8s.V1Volume>, path: string): readonly Unserved[] {
  return fieldsOf(volume)(given, path).map(({ field, why }) => {
    const type = field.slice(path.length + 1);
    return { field, why: why === noPlugin ? `${noPlugin}: volume ${JSON.stringify(given.name)} of type ${type}` : why };
  });
}
