import { CodedError, messageOf } from "../lib/errors.ts";
import { sortedByKey } from "../lib/sorted.ts";
import type { Node } from "../objects.ts";
import type { DriverFacts } from "./facts.ts";

const idsAnnotation = "csi.volume.kubernetes.io/nodeid";
/** Labels that drivers brought, by driver: they go with the last driver that has them. */
const labelsAnnotation = "graftlet.dev/driver-labels";

/** @throws failed_precondition, in the kubelet's words, for a topology that contradicts the Node's. */
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

/** Change of a Node's metadata that shows a driver; undefined where nothing is to change. */
export function withDriver(
  node: Node,
  driver: string,
  { nodeID, topology }: Omit<DriverFacts, "maxVolumes">,
): object | undefined {
  const labels = node.metadata.labels ?? {};
  const ids = idsOf(node);
  const brought = broughtOf(node);
  const all = Object.values(brought).flat();
  // A label that was there before the first driver is somebody else's.
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
      ...(!isRecorded && { [labelsAnnotation]: textOf(own.length > 0 ? { ...others, [driver]: own } : others) }),
    },
    labels: { ...topology },
  };
}

/** Change of a Node's metadata that takes a driver back, with the labels that no other driver has; undefined where nothing is to change. */
export function withoutDriver(node: Node, driver: string): object | undefined {
  const { [driver]: own, ...others } = idsOf(node);
  const { [driver]: brought = [], ...kept } = broughtOf(node);
  if (own === undefined && brought.length === 0) return undefined;
  const all = Object.values(kept).flat();
  const gone = brought.filter((key) => !all.includes(key) && node.metadata.labels?.[key] !== undefined);
  return {
    annotations: { [idsAnnotation]: textOf(others), ...(brought.length > 0 && { [labelsAnnotation]: textOf(kept) }) },
    ...(gone.length > 0 && { labels: Object.fromEntries(gone.map((key) => [key, null])) }),
  };
}

/** An annotation's text; null, which removes it, for an empty record. */
function textOf(record: Readonly<Record<string, unknown>>): string | null {
  return Object.keys(record).length > 0 ? JSON.stringify(sortedByKey(record)) : null;
}

/** Names of the node by driver, as the annotation has them. */
function idsOf({ metadata }: Node): Readonly<Record<string, string>> {
  const text = metadata.annotations?.[idsAnnotation] ?? "";
  try {
    return text === "" ? {} : (JSON.parse(text) as Record<string, string>);
  } catch (error) {
    const what = `failed to parse node's "${idsAnnotation}" annotation value (${JSON.stringify(text)}) err=`;
    throw new CodedError("failed_precondition", `${what}${messageOf(error)}`, { cause: error });
  }
}

/** Keys of labels by driver. What somebody else has written into the annotation counts for nothing. */
function broughtOf({ metadata }: Node): Readonly<Record<string, readonly string[]>> {
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
