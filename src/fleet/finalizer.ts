import { applyObject } from "../api/apply.ts";
import type { ApiClient } from "../api/client.ts";
import { ignoreNotFound } from "../lib/errors.ts";
import { type GraftedNode, graftedNodeKind, graftedNodePath, leaveFinalizer } from "./grafted-node.ts";

/** True if the object has graftlet's finalizer, which keeps it until its machine has left the cluster. */
export function isHeld({ metadata }: GraftedNode): boolean {
  return metadata.finalizers?.includes(leaveFinalizer) ?? false;
}

/** Adds graftlet's finalizer, before anything is created on the machine. Other finalizers stay as they are. */
export async function addFinalizer(client: ApiClient, object: GraftedNode, signal: AbortSignal): Promise<void> {
  if (!isHeld(object)) await applyFinalizers(client, object, [leaveFinalizer], signal);
}

/** Removes graftlet's finalizer. The cluster then deletes the object, unless it has other finalizers. */
export async function removeFinalizer(client: ApiClient, object: GraftedNode, signal: AbortSignal): Promise<void> {
  const path = graftedNodePath(object.metadata.namespace, object.metadata.name);
  // Applying to an object that is gone would fail.
  const now = await ignoreNotFound(client.get<GraftedNode>(path, { signal }));
  if (now?.metadata.uid === object.metadata.uid) await applyFinalizers(client, object, [], signal);
}

/** Applies the finalizers of graftlet's own field manager. With the UID, an object that is gone is not created again. */
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
