import type { ApiClient } from "../api/client.ts";
import { listAll } from "../api/list-all.ts";
import { type GraftedNode, graftedNodePath, isDeleted } from "./grafted-node.ts";
import type { Clock } from "../lib/clock.ts";
import { hasCode, ignoreNotFound } from "../lib/errors.ts";
import { goDuration } from "../lib/go-duration.ts";

export interface DeleteGraftedNodesDeps {
  /** A client that may list and delete GraftedNodes. */
  readonly client: Pick<ApiClient, "list" | "delete">;
  readonly clock: Clock;
  readonly namespace: string;
  /** True for the names of the release's own; other releases may have objects in the namespace. */
  readonly mayHave: (nodeName: string) => boolean;
  /** Timeout for the machines to leave, milliseconds. */
  readonly timeoutMs: number;
  readonly say: (line: string) => void;
}

const pollIntervalMs = 2_000;

/** Deletes a namespace's GraftedNodes and waits until the running graftlet has taken their machines out of the cluster, each as its
 *  deletionPolicy says. Safe to repeat.
 *  @returns the names of those that are still there at the timeout; graftlet goes on with them. */
export async function deleteGraftedNodes(
  deps: DeleteGraftedNodesDeps,
  signal: AbortSignal,
): Promise<readonly string[]> {
  const { client, clock, namespace, timeoutMs, say } = deps;
  const deadline = clock.monotonic() + timeoutMs;
  const told = new Map<string, string>();
  for (let objects = await listOwn(deps, signal); objects.length > 0; objects = await listOwn(deps, signal)) {
    const names = objects.map(({ metadata: { name } }) => name);
    for (const { metadata } of objects.filter((object) => !isDeleted(object))) {
      await ignoreNotFound(client.delete(graftedNodePath(namespace, metadata.name), undefined, { signal }));
      say(`GraftedNode ${metadata.name}: deleted; waiting for its machine to leave`);
    }
    for (const object of objects.filter(isDeleted)) {
      const { name } = object.metadata;
      const message = object.status?.conditions?.find(({ type }) => type === "Ready")?.message ?? "";
      if (message !== "" && told.get(name) !== message) say(`GraftedNode ${name}: ${message}`);
      told.set(name, message);
    }
    if (clock.monotonic() >= deadline) {
      say(`GraftedNodes that have not left within ${goDuration(timeoutMs)}: ${names.join(", ")}`);
      return names;
    }
    await clock.sleep(pollIntervalMs, signal);
  }
  say("no GraftedNodes are left");
  return [];
}

/** Lists the objects; none if their kind is not defined. */
async function listOwn(
  { client, namespace, mayHave }: DeleteGraftedNodesDeps,
  signal: AbortSignal,
): Promise<readonly GraftedNode[]> {
  try {
    const all = await listAll<GraftedNode>(client, graftedNodePath(namespace), {}, signal);
    return all.filter(({ metadata: { name } }) => mayHave(name));
  } catch (error) {
    if (hasCode(error, "not_found")) return [];
    throw error;
  }
}
