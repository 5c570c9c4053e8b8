import type { Node, Taint } from "../objects.ts";

/** Labels, annotations and taints that the configuration sets on a Node, and removes again when they are no longer configured. */
export interface ConfiguredMetadata {
  readonly labels: Readonly<Record<string, string>>;
  readonly annotations: Readonly<Record<string, string>>;
  readonly taints: readonly Taint[];
}

/** Configured metadata that may change while the node runs. */
export interface ConfiguredMetadataSource {
  current(): ConfiguredMetadata;
  /** Resolves once it has changed since the last call, or when the signal aborts. */
  changed(signal: AbortSignal): Promise<void>;
}

/** Annotation of a Node with the keys of the labels and annotations that the configuration has set, as JSON. */
const keysAnnotation = "graftlet.dev/configured";
/** Annotation of a Node with the taints that the configuration has set: `key:effect`, separated by commas. It is separate because a node
 *  may not write its own taints; the writer of the taints also writes this record. */
const taintsAnnotation = "graftlet.dev/configured-taints";

type Keys = Readonly<Record<"labels" | "annotations", readonly string[]>>;
type Changes = Readonly<Record<string, string | null>>;

/** The record for a Node that is created with the whole configuration. */
export function configuredRecord(configured: ConfiguredMetadata): Readonly<Record<string, string>> {
  return given({ [keysAnnotation]: keysText(configured), [taintsAnnotation]: taintsText(configured.taints) });
}

/** Merge patch that sets the configured labels and annotations, removes recorded ones that are no longer configured, and updates
 *  the record. Other labels and annotations are not touched.
 *  @returns undefined for no change. */
export function metadataPatch({ metadata }: Node, configured: ConfiguredMetadata): object | undefined {
  const before = keysOn(metadata.annotations?.[keysAnnotation]);
  const labels = changes(metadata.labels, configured.labels, before.labels);
  const record = keysText(configured);
  const annotations = {
    ...changes(metadata.annotations, configured.annotations, before.annotations),
    ...recordChange(metadata.annotations, keysAnnotation, record),
  };
  if (isEmpty(labels) && isEmpty(annotations)) return undefined;
  return { metadata: { ...(!isEmpty(labels) && { labels }), ...(!isEmpty(annotations) && { annotations }) } };
}

/** Like `metadataPatch`, for taints. The list is replaced as a whole, so the patch applies only to the version of the Node that it
 *  was made from; otherwise it conflicts.
 *  @returns undefined for no change. */
export function taintsPatch({ metadata, spec }: Node, { taints }: ConfiguredMetadata): object | undefined {
  const recorded = metadata.annotations?.[taintsAnnotation];
  const own = new Set([...(recorded ?? "").split(","), ...taints.map(taintText)]);
  const shown = spec?.taints ?? [];
  const isRight =
    taints.every((taint) => shown.some((one) => sameTaint(one, taint))) &&
    shown.every((one) => !own.has(taintText(one)) || taints.some((taint) => sameTaint(one, taint)));
  const annotations = recordChange(metadata.annotations, taintsAnnotation, taintsText(taints));
  if (isRight && isEmpty(annotations)) return undefined;
  const foreign = shown.filter((one) => !own.has(taintText(one)));
  return {
    metadata: { resourceVersion: metadata.resourceVersion, ...(!isEmpty(annotations) && { annotations }) },
    ...(!isRight && { spec: { taints: [...foreign, ...taints] } }),
  };
}

function changes(
  shown: Readonly<Record<string, string>> = {},
  wanted: Readonly<Record<string, string>>,
  recorded: readonly string[],
): Changes {
  const set = Object.entries(wanted).filter(([key, value]) => shown[key] !== value);
  const gone = recorded.filter((key) => !(key in wanted) && key in shown);
  return { ...Object.fromEntries(set), ...Object.fromEntries(gone.map((key) => [key, null])) };
}

function recordChange(shown: Readonly<Record<string, string>> | undefined, name: string, text: string): Changes {
  if ((shown?.[name] ?? "") === text) return {};
  return { [name]: text === "" ? null : text };
}

/** Text of the record of labels and annotations; empty if there are none. */
function keysText({ labels, annotations }: ConfiguredMetadata): string {
  const keys = { labels: Object.keys(labels).toSorted(), annotations: Object.keys(annotations).toSorted() };
  return keys.labels.length + keys.annotations.length === 0 ? "" : JSON.stringify(keys);
}

/** A corrupt record counts as empty: what it recorded stays on the Node. */
function keysOn(text = "{}"): Keys {
  try {
    const { labels, annotations } = JSON.parse(text) as { readonly [name in keyof Keys]?: unknown };
    return { labels: textsOf(labels), annotations: textsOf(annotations) };
  } catch {
    return { labels: [], annotations: [] };
  }
}

function textsOf(value: unknown): readonly string[] {
  return Array.isArray(value) ? value.filter((one) => typeof one === "string") : [];
}

function taintsText(taints: readonly Taint[]): string {
  return taints.map(taintText).join(",");
}

function taintText({ key, effect }: Taint): string {
  return `${key}:${effect}`;
}

function sameTaint(one: Taint, other: Taint): boolean {
  return taintText(one) === taintText(other) && (one.value ?? "") === (other.value ?? "");
}

function given(texts: Readonly<Record<string, string>>): Readonly<Record<string, string>> {
  return Object.fromEntries(Object.entries(texts).filter(([, text]) => text !== ""));
}

function isEmpty(map: object): boolean {
  return Object.keys(map).length === 0;
}
