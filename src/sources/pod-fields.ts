import { podTypes } from "../gen/pod-types.ts";
import { CodedError } from "../lib/errors.ts";
import { isRecord } from "../lib/record.ts";
import type { PodSpec } from "../objects.ts";

/** Error for a manifest: the field, and the remedy. */
export function refused(field: string, remedy: string): CodedError {
  return new CodedError("invalid_argument", `${field}: ${remedy}`);
}

export type Fields = Readonly<Record<string, unknown>>;

/** Decodes a pod's spec, with each field of its API type. Nulls and empty texts count as absent; quantities may be numbers. @throws
 *  CodedError invalid_argument, a sentence that names the first field of a wrong type. */
export function typedSpec(value: unknown) {
  /** Paths of unknown fields: they are dropped, as by the API server. */
  const unknown: string[] = [];
  const spec = typed(value, "V1PodSpec", "spec", unknown) as PodSpec;
  return { spec, unknown };
}

/** Decodes a map of strings, such as labels. @throws CodedError invalid_argument */
export function textsByName(value: unknown, field: string): Record<string, string> {
  return value === undefined || value === null ? {} : (typed(value, "{}string", field, []) as Record<string, string>);
}

function typed(value: unknown, type: string, field: string, unknown: string[]): unknown {
  if (type.startsWith("[]")) return listOf(value, type.slice(2), field, unknown);
  if (type.startsWith("{}")) return mapOf(value, type.slice(2), field, unknown);
  const scalar = scalars[type];
  if (scalar) {
    const read = scalar.read(value);
    if (read === undefined) throw refused(field, `expected ${scalar.expected}, found ${shown(value)}`);
    return read;
  }
  return objectOf(value, type, field, unknown);
}

interface Scalar {
  readonly expected: string;
  /** @returns undefined for a value of another type. */
  read(value: unknown): unknown;
}

const isText = (value: unknown): value is string => typeof value === "string";
const isInteger = (value: unknown): value is number => Number.isSafeInteger(value);

const scalars: Readonly<Record<string, Scalar>> = {
  string: { expected: 'a string such as "1"', read: (value) => (isText(value) ? value : undefined) },
  boolean: { expected: "true or false", read: (value) => (typeof value === "boolean" ? value : undefined) },
  number: { expected: "an integer", read: (value) => (isInteger(value) ? value : undefined) },
  IntOrString: {
    expected: "an integer or a string",
    read: (value) => (isText(value) || isInteger(value) ? value : undefined),
  },
  Quantity: {
    expected: "a quantity such as 100m or 64Mi",
    read: (value) => (isText(value) ? value : typeof value === "number" ? String(value) : undefined),
  },
  any: { expected: "a value", read: (value) => value },
};

function listOf(value: unknown, type: string, field: string, unknown: string[]): unknown[] {
  if (!Array.isArray(value)) throw refused(field, `expected a list, found ${shown(value)}`);
  return value.map((item, index) => typed(item, type, `${field}[${index}]`, unknown));
}

function mapOf(value: unknown, type: string, field: string, unknown: string[]): Fields {
  if (!isRecord(value)) throw refused(field, `expected a map, found ${shown(value)}`);
  const entries = Object.entries(value);
  return Object.fromEntries(entries.map(([name, one]) => [name, typed(one, type, `${field}[${name}]`, unknown)]));
}

function objectOf(value: unknown, type: string, field: string, unknown: string[]): Fields {
  if (!isRecord(value)) throw refused(field, `expected an object, found ${shown(value)}`);
  const types = podTypes[type] ?? {};
  const known = Object.entries(value).flatMap(([name, one]) => {
    const path = `${field}.${name}`;
    const fieldType = Object.hasOwn(types, name) ? types[name] : undefined;
    if (fieldType === undefined) unknown.push(path);
    if (fieldType === undefined || one === null || one === "") return [];
    return [[name, typed(one, fieldType, path, unknown)] as const];
  });
  return Object.fromEntries(known);
}

const maxShownCharacters = 40;

/** A value for a message. */
function shown(value: unknown): string {
  const text = JSON.stringify(value) ?? "nothing";
  return text.length > maxShownCharacters ? `${text.slice(0, maxShownCharacters)}…` : text;
}
