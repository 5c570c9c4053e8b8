import { isNodeLabel, isOwnLabel, isQualifiedName } from "./names.ts";
import { checkLabels } from "./node-config.ts";
import { refuse } from "./refusal.ts";
import type { TextMap } from "./value-types.ts";

/** Refuses labels that the node sets itself and would overwrite. @throws CodedError invalid_argument */
export function checkConfiguredLabels(setting: string, labels: TextMap): void {
  checkLabels(setting, labels);
  const own = Object.keys(labels).find(isOwnLabel);
  if (own !== undefined) throw refuse(setting, own, "the node sets that label itself; omit it");
}

/** Annotations that belong to graftlet, to the attach/detach controller and to storage drivers. */
const takenAnnotation =
  /^(graftlet\.dev\/.*|volumes\.kubernetes\.io\/controller-managed-attach-detach|csi\.volume\.kubernetes\.io\/nodeid)$/;

/** Refuses invalid annotations, and those that belong to other components. @throws CodedError invalid_argument */
export function checkAnnotations(setting: string, annotations: TextMap): void {
  for (const key of Object.keys(annotations)) {
    if (!isQualifiedName(key))
      throw refuse(
        setting,
        key,
        "an annotation's key is at most 63 letters, digits, -, _ and ., with an optional DNS prefix and /",
      );
    if (takenAnnotation.test(key)) throw refuse(setting, key, "the node sets that annotation itself; omit it");
  }
}

/** Checks keys with which storage drivers may label the Node: label keys, or a domain followed by a slash for all of its keys.
 *  @throws CodedError invalid_argument */
export function topologyKeys(setting: string, keys: readonly string[]): readonly string[] {
  for (const key of keys) {
    const example = key.endsWith("/") ? `${key}x` : key;
    if (!isQualifiedName(example) || !isNodeLabel(example))
      throw refuse(
        setting,
        key,
        "expected the key of a label that a node may set, such as topology.example.com/rack, or a domain such as topology.example.com/",
      );
  }
  return keys;
}
