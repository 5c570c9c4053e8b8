import type { PodSpec } from "../objects.ts";
import { referencedObjects } from "../pod/object-references.ts";
import { refused } from "./pod-fields.ts";
import { volumeSources } from "./volume-sources.ts";

/** Volume sources that depend only on the pod and its machine, and therefore need no API server. */
const localVolumeSources: ReadonlySet<string> = new Set(
  (
    "awsElasticBlockStore azureDisk cephfs cinder downwardAPI emptyDir fc flexVolume flocker gcePersistentDisk gitRepo " +
    "hostPath image iscsi nfs photonPersistentDisk portworxVolume projected quobyte rbd scaleIO storageos vsphereVolume"
  ).split(" "),
);

/** Refuses a static pod that references objects of the API server: such a pod starts without one, and a node may only read objects that a
 *  pod of the API server references. @throws CodedError invalid_argument
 *  @see https://kubernetes.io/docs/tasks/configure-pod-container/static-pod/ */
export function refuseReferences(spec: PodSpec): void {
  if (spec.serviceAccountName || spec.serviceAccount) throw forbidden("spec.serviceAccountName", "service accounts");
  const { secrets, configMaps } = referencedObjects({ metadata: { name: "", namespace: "", uid: "" }, spec });
  if (secrets[0] !== undefined) throw forbidden(`secret ${JSON.stringify(secrets[0])}`, "secrets");
  if (configMaps[0] !== undefined) throw forbidden(`config map ${JSON.stringify(configMaps[0])}`, "config maps");
  if (spec.resourceClaims?.length) throw forbidden("spec.resourceClaims", "resource claims");
  for (const [index, volume] of (spec.volumes ?? []).entries()) {
    const at = `spec.volumes[${index}]`;
    const needing = volumeSources(volume).find((kind) => !localVolumeSources.has(kind));
    if (needing !== undefined) throw forbidden(`${at}.${needing}`, "objects");
    const sources = (volume.projected?.sources ?? []).flatMap((one) => Object.keys(one));
    const projecting = sources.find((kind) => kind !== "downwardAPI");
    if (projecting !== undefined) throw forbidden(`${at}.projected.${projecting}`, "objects");
  }
}

function forbidden(field: string, what: string): Error {
  return refused(
    field,
    `a static pod may not use ${what} of the API server: use a file of the machine through hostPath`,
  );
}
