import { isNodeLabel, isOwnLabel, isQualifiedName } from "./names.ts";
import { checkLabels } from "./node-config.ts";
import { refuse } from "./refusal.ts";
import type { TextMap } from "./value-types.ts";

/** Refuses labels that the node sets by itself, and would set again. @throws CodedError invalid_argument */
export function checkConfiguredLabels(setting: string, labels: TextMap): void {
  checkLabels(setting, labels);
  const own = Object.keys(labels).find(isOwnLabel);
  if (own !== undefined) throw refuse(setting, own, "the node sets that label by itself; leave it out");
}

/** Annotations that belong to graftlet, to the attach/detach controller and to storage drivers. */
const takenAnnotation =
  /^(graftlet\.dev\/.*|volumes\.kubernetes\.io\/controller-managed-attach-detach|csi\.volume\.kubernetes\.io\/nodeid)$/;

/** Refuses annotations that no Node can have, or that are others' to set. @throws CodedError invalid_argument */
export function checkAnnotations(setting: string, annotations: TextMap): void {
  for (const key of Object.keys(annotations)) {
    if (!isQualifiedName(key))
      throw refuse(
        setting,
        key,
        "an annotation's key is at most 63 letters, digits, -, _ and ., with an optional DNS prefix and /",
      );
    if (takenAnnotation.test(key)) throw refuse(setting, key, "the node sets that annotation by itself; leave it out");
  }
}

/** Checks keys by which storage drivers may label the Node: those of labels, or a domain with a slash behind it for all of its keys.
 *  @throws CodedError invalid_argument */
export function topologyKeys(setting: string, keys: readonly string[]): readonly string[] {
  for (const key of keys) {
    const example = key.endsWith("/") ? `${key}x` : key;
    if (!isQualifiedName(example) || !isNodeLabel(example))
      throw refuse(
        setting,
        key,
        "a key is that of a label that a node may set, such as topology.example.com/rack, or a domain such as topology.example.com/",
      );
  }
  return keys;
}
