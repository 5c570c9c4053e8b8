import { applyObject } from "../api/apply.ts";
import type { ApiClient } from "../api/client.ts";
import { ignoreNotFound } from "../lib/errors.ts";
import { type GraftedNode, graftedNodeKind, graftedNodePath, leaveFinalizer } from "./grafted-node.ts";

/** True while the object waits for its machine. */
export function isHeld({ metadata }: GraftedNode): boolean {
  return metadata.finalizers?.includes(leaveFinalizer) ?? false;
}

/** Adds the finalizer, before anything is made on the machine. Finalizers of others stay as they are. */
export async function addFinalizer(client: ApiClient, object: GraftedNode, signal: AbortSignal): Promise<void> {
  if (!isHeld(object)) await applyFinalizers(client, object, [leaveFinalizer], signal);
}

/** Removes the finalizer: the object ends, unless others hold it. */
export async function removeFinalizer(client: ApiClient, object: GraftedNode, signal: AbortSignal): Promise<void> {
  const path = graftedNodePath(object.metadata.namespace, object.metadata.name);
  // Applying to a deleted object would count as creating one, which the account may not.
  const now = await ignoreNotFound(client.get<GraftedNode>(path, { signal }));
  if (now?.metadata.uid === object.metadata.uid) await applyFinalizers(client, object, [], signal);
}

/** Applies the finalizers of graftlet's own field manager. The UID keeps an object that is gone from being created again. */
async function applyFinalizers(
  client: ApiClient,
  { metadata: { name, namespace, uid } }: GraftedNode,
  finalizers: readonly string[],
  signal: AbortSignal,
): Promise<void> {
  const kind = graftedNodeKind(name);
  const body = { ...kind, metadata: { ...kind.metadata, uid, finalizers } };
  await applyObject(client, graftedNodePath(namespace, name), body, signal, "graftlet-finalizer");
}
