import { createHash } from "node:crypto";
import { isRecord } from "../lib/record.ts";
import { sortedByKey } from "../lib/sorted.ts";
import type { Pod, Toleration, PodSpec } from "../objects.ts";
import { configHashAnnotation, configMirrorAnnotation } from "../pod/labels.ts";
import { checkMeta, checkSpec, type StaticMeta } from "./pod-checks.ts";
import { withDefaults, volumeSources } from "./pod-defaults.ts";
import { type Fields, refused, textsByName, typedSpec } from "./pod-fields.ts";
import { referencedObjects } from "../pod/object-references.ts";

export interface ManifestOrigin {
  readonly nodeName: string;
  /** ID of the manifest: the same pod in another file or URL is a different pod. */
  readonly of: { readonly file: string } | { readonly url: string };
}

export interface StaticPod {
  readonly pod: Pod;
  /** True if the manifest contains the UID itself. */
  readonly uidGiven: boolean;
  /** Unknown fields, which are ignored. */
  readonly unknown: readonly string[];
}

/** Builds a static pod from a file or a URL in the form that the API server would give it: with the node's name appended, with defaults,
 *  and with a UID that depends on all its contents. Pure. @param object of kind Pod. @throws CodedError invalid_argument: the invalid
 *  field, and the remedy.
 *  @see https://kubernetes.io/docs/tasks/configure-pod-container/static-pod/ */
export function staticPod(object: Fields, { nodeName, of }: ManifestOrigin): StaticPod {
  const meta = parseMetadata(object["metadata"], nodeName);
  checkMeta(meta);
  if (object["spec"] === undefined || object["spec"] === null)
    throw refused("spec", "is missing: a pod has containers");
  const { spec: written, unknown } = typedSpec(object["spec"]);
  const spec = withDefaults(written);
  checkSpec(spec);
  refuseReferences(spec);
  const { name, namespace, labels, annotations } = meta;
  const uid = meta.uid ?? contentUid({ name, namespace, labels, annotations, spec, nodeName, of });
  const pod: Pod = {
    apiVersion: "v1",
    kind: "Pod",
    metadata: {
      name,
      namespace,
      uid,
      ...(Object.keys(labels).length > 0 && { labels: { ...labels } }),
      annotations: { ...annotations, [configHashAnnotation]: uid },
    },
    spec: { ...spec, nodeName, ...("file" in of && { tolerations: withNoExecute(spec.tolerations ?? []) }) },
    status: { phase: "Pending" },
  };
  return { pod, uidGiven: meta.uid !== undefined, unknown };
}

/** Metadata of a manifest; fields that only the API server sets (times, owners, versions) are ignored. */
function parseMetadata(metadata: unknown, nodeName: string): StaticMeta {
  const given = metadata ?? {};
  if (!isRecord(given)) throw refused("metadata", "contains no fields: write at least a name");
  const name = metadataText(given, "name");
  if (name === undefined) throw refused("metadata.name", "is missing: give the pod a name");
  const annotations = textsByName(given["annotations"], "metadata.annotations");
  if (annotations[configMirrorAnnotation] !== undefined)
    throw refused(
      `metadata.annotations[${configMirrorAnnotation}]`,
      "is reserved for mirror pods: omit it, and the node's name at the end of the pod's name",
    );
  return {
    name: `${name}-${nodeName.toLowerCase()}`,
    namespace: metadataText(given, "namespace") ?? "default",
    uid: metadataText(given, "uid"),
    labels: textsByName(given["labels"], "metadata.labels"),
    annotations,
  };
}

function metadataText(metadata: Fields, field: string): string | undefined {
  const value = metadata[field];
  if (value === undefined || value === null || value === "") return undefined;
  if (typeof value !== "string") throw refused(`metadata.${field}`, `is not a string: put it in quotes`);
  return value;
}

const uidDigits = 32;

/** 32 hexadecimal digits, in a kubelet's format; the values differ, because a kubelet hashes its in-memory representation. */
function contentUid(content: object): string {
  return createHash("sha256").update(sortedJson(content)).digest("hex").slice(0, uidDigits);
}

/** JSON that does not depend on the order of fields. */
function sortedJson(value: object): string {
  return JSON.stringify(value, (_key, one: unknown) => (isRecord(one) ? sortedByKey(one) : one));
}

/** Pods from files tolerate all NoExecute taints, as with the kubelet. */
function withNoExecute(tolerations: readonly Toleration[]): Toleration[] {
  const all: Toleration = { operator: "Exists", effect: "NoExecute" };
  const isSame = ({ key, operator, effect }: Toleration) => !key && operator === "Exists" && effect === "NoExecute";
  return tolerations.some(isSame) ? [...tolerations] : [...tolerations, all];
}

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
function refuseReferences(spec: PodSpec): void {
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
