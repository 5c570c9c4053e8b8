import { type Deed, auditedSoFar, deedsOf } from "../harness/audit.ts";
import type { Cluster } from "../harness/cluster.ts";

/** What an agent wrote of pods to the API server. */
export interface PodWrites {
  /** Of the pods themselves: their status, their end. */
  readonly pods: number;
  readonly events: number;
  readonly tokens: number;
}

const writing = ["create", "update", "patch", "delete"];

/** Begins to count. @returns what tells what the node's agent has written since of pods whose names begin so. */
export function countPodWrites({ layout, nodeName }: Cluster): (prefix: string) => PodWrites {
  const from = auditedSoFar(layout);
  return (prefix) => writesIn(deedsOf(layout, from), `system:node:${nodeName}`, prefix);
}

/** @param deeds what the API server wrote down. */
export function writesIn(deeds: readonly Deed[], user: string, prefix: string): PodWrites {
  const own = deeds.filter(
    ({ verb, stage, user: { username } }) =>
      username === user && stage === "ResponseComplete" && writing.includes(verb),
  );
  const of = (resource: string) =>
    own.filter(({ objectRef }) => objectRef?.resource === resource && objectRef.name?.startsWith(prefix)).length;
  // A token is asked for by its account's name: whose pod it is for is not written down.
  const tokens = own.filter(({ objectRef }) => objectRef?.subresource === "token").length;
  return { pods: of("pods"), events: of("events"), tokens };
}
