import { containerNameLabel, nodeLabel } from "../../../src/pod/labels.ts";
import {
  annotationPrefix,
  imageLabel,
  logPathLabel,
  runtimeHandlerLabel,
  sandboxIdLabel,
  sandboxType,
  typeLabel,
} from "./names.ts";

/** Marks a node label that was not requested, so that criLabels returns the requested labels only. */
const nodeLabelAddedLabel = "graftlet.dev/node-label-added";

const providerLabels = [typeLabel, sandboxIdLabel, logPathLabel, imageLabel, runtimeHandlerLabel, nodeLabelAddedLabel];

type StringMap = Readonly<Record<string, string>>;

export type CriLabels = ReturnType<typeof criLabels>;

/** Returns the Docker labels of a sandbox or container: CRI's labels, its annotations behind a prefix (as in cri-dockerd), the
 *  provider's `own`, which take precedence, and the node label. */
export function dockerLabels(
  { labels, annotations }: { readonly labels: StringMap; readonly annotations: StringMap },
  nodeName: string,
  own: StringMap,
): Record<string, string> {
  const prefixed: Record<string, string> = {};
  for (const [name, value] of Object.entries(annotations)) prefixed[annotationPrefix + name] = value;
  return {
    ...labels,
    ...prefixed,
    ...(labels[nodeLabel] === undefined && { [nodeLabelAddedLabel]: "true" }),
    ...own,
    [nodeLabel]: nodeName,
  };
}

/** Converts Docker labels back to CRI's labels and annotations, exactly as requested. */
export function criLabels(docker: StringMap) {
  const labels: Record<string, string> = {};
  const annotations: Record<string, string> = {};
  const hidden = new Set(providerLabels);
  if (docker[nodeLabelAddedLabel] !== undefined) hidden.add(nodeLabel);
  if (docker[typeLabel] === sandboxType) hidden.add(containerNameLabel);
  for (const [name, value] of Object.entries(docker)) {
    if (name.startsWith(annotationPrefix)) annotations[name.slice(annotationPrefix.length)] = value;
    else if (!hidden.has(name)) labels[name] = value;
  }
  return { labels, annotations };
}
