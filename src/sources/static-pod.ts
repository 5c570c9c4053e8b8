import { createHash } from "node:crypto";
import type { Pod, Toleration } from "../objects.ts";
import { configHashAnnotation, configMirrorAnnotation } from "../pod/labels.ts";
import { refuseReferences } from "./api-references.ts";
import { checkMeta, checkSpec, type StaticMeta } from "./pod-checks.ts";
import { withDefaults } from "./pod-defaults.ts";
import { type Fields, isFields, refused, textsByName, typedSpec } from "./pod-fields.ts";

export interface Origin {
  readonly nodeName: string;
  /** Which manifest: the same pod of another file or URL is another pod. */
  readonly of: { readonly file: string } | { readonly url: string };
}

export interface StaticPod {
  readonly pod: Pod;
  /** The manifest gives the UID itself. */
  readonly uidGiven: boolean;
  /** Fields that no pod has, which count for nothing. */
  readonly unknown: readonly string[];
}

/** A pod as a file or a URL describes it, made what the API server would have made of it: named after its node, with defaults, and
 *  with a UID that is another as soon as anything of it is. Pure.
 *  @param object of kind Pod. @throws CodedError invalid_argument: the field that is wrong, and what to write.
 *  @see https://kubernetes.io/docs/tasks/configure-pod-container/static-pod/ */
export function staticPod(object: Fields, { nodeName, of }: Origin): StaticPod {
  const meta = metaOf(object["metadata"], nodeName);
  checkMeta(meta);
  if (object["spec"] === undefined || object["spec"] === null)
    throw refused("spec", "is missing: a pod has containers");
  const { spec: written, unknown } = typedSpec(object["spec"]);
  const spec = withDefaults(written);
  checkSpec(spec);
  refuseReferences(spec);
  const { name, namespace, labels, annotations } = meta;
  const uid = meta.uid ?? uidOf({ name, namespace, labels, annotations, spec, nodeName, of });
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

/** What a manifest says of itself; what only the API server gives (times, owners, versions) counts for nothing. */
function metaOf(metadata: unknown, nodeName: string): StaticMeta {
  const given = metadata ?? {};
  if (!isFields(given)) throw refused("metadata", "holds no fields: write at least a name");
  const name = textOf(given, "name");
  if (name === undefined) throw refused("metadata.name", "is missing: give the pod a name");
  const annotations = textsByName(given["annotations"], "metadata.annotations");
  if (annotations[configMirrorAnnotation] !== undefined)
    throw refused(
      `metadata.annotations[${configMirrorAnnotation}]`,
      "is the node's own mark of a mirror pod: leave it out, and the node's name at the end of the pod's name too",
    );
  return {
    name: `${name}-${nodeName.toLowerCase()}`,
    namespace: textOf(given, "namespace") ?? "default",
    uid: textOf(given, "uid"),
    labels: textsByName(given["labels"], "metadata.labels"),
    annotations,
  };
}

function textOf(metadata: Fields, field: string): string | undefined {
  const value = metadata[field];
  if (value === undefined || value === null || value === "") return undefined;
  if (typeof value !== "string") throw refused(`metadata.${field}`, `is no text: write it in quotes`);
  return value;
}

const uidDigits = 32;

/** 32 hexadecimal digits, as a kubelet's are; their values are graftlet's own, since a kubelet's come from its memory. */
function uidOf(content: object): string {
  return createHash("sha256").update(sortedJson(content)).digest("hex").slice(0, uidDigits);
}

/** JSON in which the order of fields says nothing. */
function sortedJson(value: object): string {
  return JSON.stringify(value, (_key, one: unknown) =>
    isFields(one) ? Object.fromEntries(Object.entries(one).sort(([a], [b]) => (a < b ? -1 : 1))) : one,
  );
}

/** A file's pod stays, whatever is wrong with its node. */
function withNoExecute(tolerations: readonly Toleration[]): Toleration[] {
  const all: Toleration = { operator: "Exists", effect: "NoExecute" };
  const isSame = ({ key, operator, effect }: Toleration) => !key && operator === "Exists" && effect === "NoExecute";
  return tolerations.some(isSame) ? [...tolerations] : [...tolerations, all];
}
