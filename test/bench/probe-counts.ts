import type { Cluster } from "../harness/cluster.ts";
import { type Family, parseExposition } from "../unit/metrics/exposition.ts";

/** The container whose probes fail, as they should: those of all others pass. */
export const unfit = "unfit";

/** How the probes of some pods have come out so far. */
export interface ProbeCounts {
  readonly made: number;
  /** Of those made: they said something else than is so. */
  readonly wrong: number;
}

/** Asks the node's agent. @param isOwn whether a pod of that name counts. */
export async function probeCounts(
  { mustKubectl, nodeName }: Pick<Cluster, "mustKubectl" | "nodeName">,
  isOwn: (pod: string) => boolean,
): Promise<ProbeCounts> {
  const text = await mustKubectl(["get", "--raw", `/api/v1/nodes/${nodeName}/proxy/metrics/probes`]);
  return countsIn(parseExposition(text), isOwn);
}

/** A result that nobody knows is as wrong as a false one. */
export function countsIn(families: ReadonlyMap<string, Family>, isOwn: (pod: string) => boolean): ProbeCounts {
  const own = (families.get("prober_probe_total")?.samples ?? []).filter(({ labels }) => isOwn(labels["pod"] ?? ""));
  const sum = (samples: typeof own) => samples.reduce((total, { value }) => total + value, 0);
  const isRight = ({ labels }: (typeof own)[number]) =>
    labels["result"] === (labels["container"] === unfit ? "failed" : "successful");
  return { made: sum(own), wrong: sum(own.filter((sample) => !isRight(sample))) };
}
