import type { ApiClient } from "./client.ts";

/** Applies an object, or the part of it that a field manager owns. Values of other managers give way; what this manager applied before and
 *  leaves out now is removed.
 *  @param path of the object, or of its status.
 *  @returns the object. @throws the client's errors.
 *  @see https://kubernetes.io/docs/reference/using-api/server-side-apply/ */
export async function applyObject<T>(
  client: Pick<ApiClient, "patch">,
  path: string,
  body: object,
  signal: AbortSignal,
  fieldManager = "graftlet",
): Promise<T> {
  return await client.patch<T>(path, { type: "apply", body }, { signal, query: { fieldManager, force: true } });
}
