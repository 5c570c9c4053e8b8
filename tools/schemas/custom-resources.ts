import { fileOf, type Schema, type SchemaFiles, strict } from "./json-schema.ts";

/** What of a CustomResourceDefinition counts here. */
export interface Definition {
  readonly spec: {
    readonly group: string;
    readonly names: { readonly kind: string };
    readonly versions: readonly {
      readonly name: string;
      readonly schema: { readonly openAPIV3Schema: Schema & { readonly properties: Readonly<Record<string, Schema>> } };
    }[];
  };
}

/** Strict schemas of the kinds that CustomResourceDefinitions define. Pure.
 *  @param metadata the schema of ObjectMeta, which definitions leave to the API server, with what it needs. */
export function customSchemas(
  definitions: readonly Definition[],
  metadata: { readonly name: string; readonly definitions: Readonly<Record<string, unknown>> },
): SchemaFiles {
  return new Map(
    definitions.flatMap(({ spec: { group, names, versions } }) =>
      versions.map(({ name, schema: { openAPIV3Schema: whole } }): [string, Schema] => [
        fileOf(group, name, names.kind),
        {
          ...(strict({
            ...whole,
            properties: { ...whole.properties, metadata: { $ref: `#/definitions/${metadata.name}` } },
          }) as Schema),
          definitions: metadata.definitions,
        },
      ]),
    ),
  );
}
