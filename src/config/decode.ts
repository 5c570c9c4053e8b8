import { isRecord } from "../lib/record.ts";
import { nearest } from "./names.ts";
import { refuse } from "./refusal.ts";
import { type Field, fieldsOf, isField, nameOf, type Shape, type ValueOf } from "./schema.ts";

/** A configuration document as parsed from YAML or JSON. */
export type ConfigDocument = Readonly<Record<string, unknown>>;

/** Location of a document's settings, for messages: a file, and the path to the document inside it, if any. */
export interface Origin {
  readonly file: string;
  readonly path?: string;
}

/** Decodes a document strictly: unknown names and values of the wrong type are errors. Missing, null and (where the kubelet treats it so)
 *  zero values get the default. @throws CodedError invalid_argument, naming the first wrong field. */
export function decode<S extends Shape>(shape: S, wire: ConfigDocument, origin: Origin): ValueOf<S> {
  return decodeGroup(shape, wire, origin.path ? `${origin.path}.` : "", origin.file) as ValueOf<S>;
}

function decodeGroup(shape: Shape, wire: unknown, prefix: string, file: string): Record<string, unknown> {
  const given = wire ?? {};
  if (!isRecord(given))
    throw refuse(`${file}: ${prefix.slice(0, -1)}`, wire, "expected a group of fields; indent them below it");
  const unknown = Object.keys(given).find((name) => !Object.hasOwn(shape, name));
  if (unknown !== undefined) {
    const near = nearest(unknown, Object.keys(shape));
    const shown = isRecord(given[unknown]) ? undefined : given[unknown];
    throw refuse(
      `${file}: ${prefix}${unknown}`,
      shown,
      `is not a field of this configuration; ${near ? `did you mean ${near}?` : "remove it"}`,
    );
  }
  const values: Record<string, unknown> = {};
  for (const [name, node] of Object.entries(shape)) {
    values[name] = isField(node)
      ? decodeField(node, given[name], `${file}: ${nameOf(`${prefix}${name}`, node.flag)}`)
      : decodeGroup(node, given[name], `${prefix}${name}.`, file);
  }
  return values;
}

function decodeField(field: Field<unknown>, wire: unknown, name: string): unknown {
  if (wire === undefined || wire === null) return field.byDefault;
  const value = field.type.decode(wire);
  if (value === undefined) throw refuse(name, field.secret ? undefined : wire, `expected ${field.type.expected}`);
  return field.zeroIsUnset && value === field.type.zero ? field.byDefault : value;
}

export function defaultsOf<S extends Shape>(shape: S): ValueOf<S> {
  return decode(shape, {}, { file: "" });
}

/** The document that decodes to these values; unset values are omitted. */
export function encode<S extends Shape>(shape: S, values: ValueOf<S>): Record<string, unknown> {
  return encodeGroup(shape, values);
}

function encodeGroup(shape: Shape, values: unknown): Record<string, unknown> {
  const wire: Record<string, unknown> = {};
  for (const [name, node] of Object.entries(shape)) {
    const value = isRecord(values) ? values[name] : undefined;
    if (value !== undefined) wire[name] = isField(node) ? node.type.encode(value) : encodeGroup(node, value);
  }
  return wire;
}

/** Value of the setting at a path such as `authentication.anonymous.enabled`. */
export function valueAt(values: unknown, path: string): unknown {
  return path.split(".").reduce<unknown>((at, name) => (isRecord(at) ? at[name] : undefined), values);
}

/** A copy of the values with one setting changed. */
export function withValue<T>(values: T, path: string, value: unknown): T {
  const [name = "", ...rest] = path.split(".");
  const inner = rest.length === 0 ? value : withValue(isRecord(values) ? values[name] : {}, rest.join("."), value);
  return { ...values, [name]: inner };
}

/** Checks each value by its own field's rule. @throws CodedError invalid_argument */
export function checkValues<S extends Shape>(shape: S, values: ValueOf<S>): void {
  for (const [path, field] of fieldsOf(shape)) {
    const value = valueAt(values, path);
    const remedy = field.check?.(value);
    if (remedy !== undefined)
      throw refuse(nameOf(path, field.flag), field.secret ? undefined : field.type.encode(value), remedy);
  }
}

/** One line for each unsupported setting that differs from its default. */
export function unsupportedWarnings<S extends Shape>(shape: S, values: ValueOf<S>, byDefault: ValueOf<S>): string[] {
  const lines: string[] = [];
  for (const [path, field] of fieldsOf(shape)) {
    const value = valueAt(values, path);
    const clause = same(value, valueAt(byDefault, path)) ? undefined : field.instead?.(value);
    if (clause !== undefined) lines.push(`${nameOf(path, field.flag)} is not supported yet: ${clause}`);
  }
  return lines;
}

/** Describes graftlet's actual behaviour, one clause each, for unsupported settings whose default has an effect in the kubelet.
 *  Settings with another value are omitted: `unsupportedWarnings` has a line for each. */
export function unsupportedDefaults<S extends Shape>(shape: S, values: ValueOf<S>, byDefault: ValueOf<S>): string[] {
  const clauses: string[] = [];
  for (const [path, field] of fieldsOf(shape)) {
    const value = valueAt(values, path);
    const clause = field.actsByDefault && same(value, valueAt(byDefault, path)) ? field.instead?.(value) : undefined;
    if (clause !== undefined) clauses.push(clause);
  }
  return clauses;
}

/** Deep equality, independent of the order of keys. */
function same(one: unknown, other: unknown): boolean {
  if (isRecord(one) && isRecord(other)) {
    const names = Object.keys(one);
    return (
      names.length === Object.keys(other).length &&
      names.every((name) => Object.hasOwn(other, name) && same(one[name], other[name]))
    );
  }
  if (Array.isArray(one) && Array.isArray(other))
    return one.length === other.length && one.every((item, index) => same(item, other[index]));
  return one === other;
}
