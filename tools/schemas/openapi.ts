import { fileOf, isSchema, type Schema, type SchemaFiles, strict } from "./json-schema.ts";

/** A document of an API server's OpenAPI v3, of one group and version. */
export interface OpenApi {
  readonly components?: { readonly schemas?: Readonly<Record<string, Schema>> };
}

/** Names of schemas as OpenAPI refers to them. */
const prefix = "#/components/schemas/";

/** Strict schemas of the kinds of API documents, each whole in itself. Pure. What is no object of the API, such as a list or options, has
 *  none.
 *  @see https://kubernetes.io/docs/concepts/overview/kubernetes-api/#openapi-v3 */
export function schemasOf(documents: readonly OpenApi[]): SchemaFiles {
  return new Map(documents.flatMap(({ components }) => kindsIn(components?.schemas ?? {})));
}

/** What a document's schema needs of its others, itself included, as `definitions`. Pure.
 *  @throws when one is missing. */
export function closureOf(name: string, schemas: Readonly<Record<string, Schema>>): Readonly<Record<string, unknown>> {
  const found = new Map<string, unknown>();
  const add = (each: string): void => {
    if (found.has(each)) return;
    const schema = schemas[each];
    if (!schema) throw new Error(`the OpenAPI has no schema ${each}`);
    found.set(each, schema);
    for (const next of referencesIn(schema)) add(next);
  };
  add(name);
  return Object.fromEntries([...found].map(([each, schema]) => [each, strict(renamed(schema))]));
}

function kindsIn(schemas: Readonly<Record<string, Schema>>): [string, Schema][] {
  return Object.entries(schemas).flatMap(([name, schema]): [string, Schema][] => {
    const [kind, ...others] = (schema["x-kubernetes-group-version-kind"] ?? []) as Record<string, string>[];
    const { metadata, items } = (schema["properties"] ?? {}) as Record<string, unknown>;
    if (!kind || others.length > 0 || metadata === undefined || items !== undefined) return [];
    const file = fileOf(kind["group"] ?? "", kind["version"] ?? "", kind["kind"] ?? "");
    return [[file, { $ref: `#/definitions/${name}`, definitions: closureOf(name, schemas) }]];
  });
}

function referencesIn(value: unknown): string[] {
  if (Array.isArray(value)) return value.flatMap(referencesIn);
  if (!isSchema(value)) return [];
  return Object.entries(value).flatMap(([key, part]) =>
    key === "$ref" && typeof part === "string" ? [part.slice(prefix.length)] : referencesIn(part),
  );
}

/** With references to `definitions`. */
function renamed(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(renamed);
  if (!isSchema(value)) return value;
  return Object.fromEntries(
    Object.entries(value).map(([key, part]) => [
      key,
      key === "$ref" && typeof part === "string" ? part.replace(prefix, "#/definitions/") : renamed(part),
    ]),
  );
}
