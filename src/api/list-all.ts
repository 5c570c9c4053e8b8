import type { ApiClient, Query } from "./client.ts";

const pageSize = 500;

/** Lists all objects of a collection, page by page.
 *  @param path of the collection, optionally in a namespace.
 *  @param query selectors.
 *  @throws ApiError as the client's `list`, also if the continue token expires.
 *  @see https://kubernetes.io/docs/reference/using-api/api-concepts/#retrieving-large-results-sets-in-chunks */
export async function listAll<T>(
  client: Pick<ApiClient, "list">,
  path: string,
  query: Query,
  signal: AbortSignal,
): Promise<readonly T[]> {
  const items: T[] = [];
  for (let token: string | undefined; ; ) {
    const page = await client.list<T>(path, { query: { ...query, limit: pageSize, continue: token }, signal });
    items.push(...(page.items ?? []));
    token = page.metadata?.continue || undefined;
    if (token === undefined) return items;
  }
}
