import { CodedError, messageOf } from "../lib/errors.ts";
import { sortedByKey } from "../lib/sorted.ts";
import type { Node } from "../objects.ts";

const idsAnnotation = "csi.volume.kubernetes.io/nodeid";
/** Topology labels set for drivers, by driver: a label is removed with the last driver that has it. */
const labelsAnnotation = "graftlet.dev/driver-labels";

/** @throws failed_precondition, in the kubelet's words, for a topology that conflicts with the Node's labels. */
export function checkTopology({ metadata: { labels = {} } }: Node, topology: DriverFacts["topology"]): void {
  for (const [key, value] of Object.entries(topology)) {
    const shown = labels[key];
    if (shown !== undefined && shown !== value)
      throw new CodedError(
        "failed_precondition",
        `detected topology value collision: driver reported ${JSON.stringify(key)}:${JSON.stringify(value)} but existing label is ${JSON.stringify(key)}:${JSON.stringify(shown)}`,
      );
  }
}

/** Metadata patch that adds a driver to a Node; undefined if nothing changes. */
export function withDriver(
  node: Node,
  driver: string,
  { nodeID, topology }: Omit<DriverFacts, "maxVolumes">,
): object | undefined {
  const labels = node.metadata.labels ?? {};
  const ids = nodeIdsOf(node);
  const brought = driverLabelsOf(node);
  const all = Object.values(brought).flat();
  // A label that existed before the first driver was set by someone else.
  const own = Object.keys(topology)
    .filter((key) => labels[key] === undefined || all.includes(key))
    .sort();
  const isRecorded = own.join() === (brought[driver] ?? []).join();
  const lacks = Object.keys(topology).some((key) => labels[key] === undefined);
  if (ids[driver] === nodeID && !lacks && isRecorded) return undefined;
  const { [driver]: _former, ...others } = brought;
  return {
    annotations: {
      [idsAnnotation]: JSON.stringify(sortedByKey({ ...ids, [driver]: nodeID })),
      ...(!isRecorded && {
        [labelsAnnotation]: annotationText(own.length > 0 ? { ...others, [driver]: own } : others),
      }),
    },
    labels: { ...topology },
  };
}

/** Metadata patch that removes a driver, with the labels that no other driver has; undefined if nothing changes. */
export function withoutDriver(node: Node, driver: string): object | undefined {
  const { [driver]: own, ...others } = nodeIdsOf(node);
  const { [driver]: brought = [], ...kept } = driverLabelsOf(node);
  if (own === undefined && brought.length === 0) return undefined;
  const all = Object.values(kept).flat();
  const gone = brought.filter((key) => !all.includes(key) && node.metadata.labels?.[key] !== undefined);
  return {
    annotations: {
      [idsAnnotation]: annotationText(others),
      ...(brought.length > 0 && { [labelsAnnotation]: annotationText(kept) }),
    },
    ...(gone.length > 0 && { labels: Object.fromEntries(gone.map((key) => [key, null])) }),
  };
}

/** Text of an annotation; null, which removes it, for an empty record. */
function annotationText(record: Readonly<Record<string, unknown>>): string | null {
  return Object.keys(record).length > 0 ? JSON.stringify(sortedByKey(record)) : null;
}

/** Node IDs by driver, from the annotation. */
function nodeIdsOf({ metadata }: Node): Readonly<Record<string, string>> {
  const text = metadata.annotations?.[idsAnnotation] ?? "";
  try {
    return text === "" ? {} : (JSON.parse(text) as Record<string, string>);
  } catch (error) {
    const what = `failed to parse node's "${idsAnnotation}" annotation value (${JSON.stringify(text)}) err=`;
    throw new CodedError("failed_precondition", `${what}${messageOf(error)}`, { cause: error });
  }
}

/** Label keys by driver. An annotation that cannot be parsed is ignored. */
function driverLabelsOf({ metadata }: Node): Readonly<Record<string, readonly string[]>> {
  try {
    const record: unknown = JSON.parse(metadata.annotations?.[labelsAnnotation] ?? "{}");
    const entries = Object.entries(typeof record === "object" && record !== null ? record : {});
    return Object.fromEntries(
      entries.flatMap(([driver, keys]: [string, unknown]) => {
        const texts = Array.isArray(keys) ? keys.filter((key: unknown) => typeof key === "string") : [];
        return texts.length > 0 ? [[driver, texts] as const] : [];
      }),
    );
  } catch {
    return {};
  }
}

/** What a driver reports about this node. */
export interface DriverFacts {
  readonly nodeID: string;
  /** Maximum number of volumes of the driver on the node; 0 means no limit. */
  readonly maxVolumes: bigint;
  readonly topology: Readonly<Record<string, string>>;
}
