import type { ApiClient } from "../api/client.ts";
import { listAll } from "../api/list-all.ts";
import { type GraftedNode, graftedNodePath, isDeleted, readyCondition } from "./grafted-node.ts";
import type { Clock } from "../lib/clock.ts";
import { hasCode, ignoreNotFound } from "../lib/errors.ts";
import { goDuration } from "../lib/go-duration.ts";

export interface DeleteGraftedNodesDeps {
  /** Needs the permissions to list and delete GraftedNodes. */
  readonly client: Pick<ApiClient, "list" | "delete">;
  readonly clock: Clock;
  readonly namespace: string;
  /** True for names of this release's nodes: objects of other releases may be in the same namespace. */
  readonly mayHave: (nodeName: string) => boolean;
  /** Time limit for the running graftlet to remove the machines, milliseconds. */
  readonly timeoutMs: number;
  readonly say: (line: string) => void;
}

const pollIntervalMs = 2_000;

/** Deletes the release's GraftedNodes in a namespace, and waits until the running graftlet has removed their machines from the cluster, each
 *  according to its deletionPolicy. Safe to repeat.
 *  @returns the names of the objects that remain at the time limit. */
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
      const message = readyCondition(object.status)?.message ?? "";
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

/** Lists the release's objects; none if the CustomResourceDefinition is missing. */
async function listOwn(
  { client, namespace, mayHave }: DeleteGraftedNodesDeps,
  signal: AbortSignal,
): Promise<readonly GraftedNode[]> {
  try {
    const all = await listAll<GraftedNode>(client, graftedNodePath(namespace), {}, signal);
    // A static object is deleted with the release, and created again while graftlet runs.
    return all.filter(({ metadata: { name }, spec }) => !spec.static && mayHave(name));
  } catch (error) {
    if (hasCode(error, "not_found")) return [];
    throw error;
  }
}
