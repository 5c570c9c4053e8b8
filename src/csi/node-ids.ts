import { CodedError, messageOf } from "../lib/errors.ts";
import { sortedByKey } from "../lib/sorted.ts";
import type { Node } from "../objects.ts";
import type { DriverFacts } from "./facts.ts";

const idsAnnotation = "csi.volume.kubernetes.io/nodeid";

/** Change of a Node's metadata that shows a driver; undefined where nothing is to change. @throws for a topology that contradicts the
 *  Node's. */
export function withDriver(node: Node, driver: string, { nodeID, topology }: DriverFacts): object | undefined {
  const labels = node.metadata.labels ?? {};
  for (const [key, value] of Object.entries(topology)) {
    const shown = labels[key];
    if (shown !== undefined && shown !== value)
      throw new CodedError(
        "failed_precondition",
        `detected topology value collision: driver reported ${JSON.stringify(key)}:${JSON.stringify(value)} but existing label is ${JSON.stringify(key)}:${JSON.stringify(shown)}`,
      );
  }
  const ids = idsOf(node);
  const lacks = Object.keys(topology).some((key) => labels[key] === undefined);
  if (ids[driver] === nodeID && !lacks) return undefined;
  return {
    annotations: { [idsAnnotation]: JSON.stringify(sortedByKey({ ...ids, [driver]: nodeID })) },
    labels: { ...topology },
  };
}

/** Change of a Node's metadata that takes a driver back; undefined where nothing is to change. */
export function withoutDriver(node: Node, driver: string): object | undefined {
  const { [driver]: own, ...others } = idsOf(node);
  if (own === undefined) return undefined;
  return {
    annotations: { [idsAnnotation]: Object.keys(others).length > 0 ? JSON.stringify(sortedByKey(others)) : null },
  };
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
