import type * as k8s from "@kubernetes/client-node";
import type { Wire } from "../objects.ts";
import { type WireDecisions, checkEach, checkFields, unsupportedIf, type UnsupportedField } from "./field-decisions.ts";

const noPlugin = "no volume plugin matched";

/** Even an empty source (`flexVolume: {}`) requests a volume. */
const unsupportedType = unsupportedIf(() => true, noPlugin);

const emptyDirFields: WireDecisions<k8s.V1EmptyDirVolumeSource> = {
  medium: "supported",
  sizeLimit: "supported",
};

const imageFields: WireDecisions<k8s.V1ImageVolumeSource> = { pullPolicy: "supported", reference: "supported" };

export const projection: WireDecisions<k8s.V1VolumeProjection> = {
  clusterTrustBundle: "supported",
  configMap: "supported",
  downwardAPI: "supported",
  podCertificate: "supported",
  secret: "supported",
  serviceAccountToken: "supported",
};

const projected: WireDecisions<k8s.V1ProjectedVolumeSource> = {
  defaultMode: "supported",
  sources: checkEach(checkFields(projection)),
};

export const volume: WireDecisions<k8s.V1Volume> = {
  awsElasticBlockStore: "supported",
  azureDisk: "supported",
  azureFile: "supported",
  cephfs: unsupportedType,
  cinder: "supported",
  configMap: "supported",
  csi: "supported",
  downwardAPI: "supported",
  emptyDir: checkFields(emptyDirFields),
  ephemeral: "supported",
  fc: unsupportedType,
  flexVolume: unsupportedType,
  flocker: unsupportedType,
  gcePersistentDisk: "supported",
  gitRepo: unsupportedType,
  glusterfs: unsupportedType,
  hostPath: "supported",
  image: checkFields(imageFields),
  iscsi: "supported",
  name: "supported",
  nfs: "supported",
  persistentVolumeClaim: "supported",
  photonPersistentDisk: unsupportedType,
  portworxVolume: "supported",
  projected: checkFields(projected),
  quobyte: unsupportedType,
  rbd: unsupportedType,
  scaleIO: unsupportedType,
  secret: "supported",
  storageos: unsupportedType,
  vsphereVolume: "supported",
};

/** Unsupported fields of a volume; an unsupported type is reported with the volume's name. */
export function unsupportedInVolume(given: Wire<k8s.V1Volume>, path: string): readonly UnsupportedField[] {
  return checkFields(volume)(given, path).map(({ field, why }) => {
    const type = field.slice(path.length + 1);
    return { field, why: why === noPlugin ? `${noPlugin}: volume ${JSON.stringify(given.name)} of type ${type}` : why };
  });
}
