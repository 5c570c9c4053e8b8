/** A JSON schema, or a part of one. */
export type Schema = Readonly<Record<string, unknown>>;

/** Schemas of objects by the files that kubeconform looks them up in: GROUP/kind_VERSION.json, where the core's group is its version.
 *  @see https://github.com/yannh/kubeconform#overriding-schemas-location */
export type SchemaFiles = ReadonlyMap<string, Schema>;

/** The same as kubeconform's `-schema-location` has it, below a folder. */
export const locationBelow = "{{.Group}}/{{.ResourceKind}}_{{.ResourceAPIVersion}}.json";

/** Where kubeconform looks for an object's schema. Pure. */
export function fileOf(group: string, version: string, kind: string): string {
  return `${group === "" ? version : group}/${kind.toLowerCase()}_${version}.json`;
}

/** Whether a value is an object of JSON. */
export function isSchema(value: unknown): value is Schema {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** A schema that refuses each field which it does not name, as the API server does with `fieldValidation: Strict`. Pure. A part that says
 *  what further fields are, or that it keeps unknown ones, stays open. */
export function strict(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(strict);
  if (!isSchema(value)) return value;
  const inner = Object.fromEntries(Object.entries(value).map(([key, part]) => [key, strict(part)]));
  const closed =
    isSchema(value["properties"]) &&
    value["additionalProperties"] === undefined &&
    value["x-kubernetes-preserve-unknown-fields"] !== true;
  // A field may be called `properties`, too: a part that is no schema has no type.
  return closed && value["type"] === "object" ? { ...inner, additionalProperties: false } : inner;
}
