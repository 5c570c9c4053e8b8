import type { ValueType } from "./value-types.ts";

/** One setting: its syntax, its default, and its support in graftlet. */
export interface Field<T> {
  readonly type: ValueType<T>;
  readonly byDefault: T;
  /** True if the kubelet's field is a value rather than a pointer: a zero in a file then means unset. */
  readonly zeroIsUnset: boolean;
  /** Name of its flag, without dashes. */
  readonly flag?: string | undefined;
  /** Remedy for a value of the right type that is invalid; undefined for a valid value. */
  check?(value: T): string | undefined;
  /** For an unsupported setting: the actual behaviour; undefined for values that make no difference. */
  instead?(value: T): string | undefined;
  /** True if the default of an unsupported setting has an effect in the kubelet. */
  readonly actsByDefault?: boolean | undefined;
  /** True if messages must not contain the value. */
  readonly secret?: boolean | undefined;
}

export interface FieldOptions<T> {
  readonly flag?: string;
  readonly check?: (value: T) => string | undefined;
  /** A clause that completes "is not supported yet: …". */
  readonly instead?: string | ((value: T) => string | undefined);
  readonly actsByDefault?: boolean;
  readonly secret?: boolean;
}

/** Settings by name, nested in groups as in the configuration file. */
export interface Shape {
  readonly [name: string]: Field<unknown> | Shape;
}

/** The values of a shape, with all settings present. */
export type ValueOf<S> = S extends Field<infer T> ? T : { readonly [Name in keyof S]: ValueOf<S[Name]> };

function build<T>(type: ValueType<T>, byDefault: T, zeroIsUnset: boolean, options: FieldOptions<T>): Field<T> {
  const { instead, ...rest } = options;
  return {
    type,
    byDefault,
    zeroIsUnset,
    ...rest,
    ...(instead !== undefined && { instead: typeof instead === "string" ? () => instead : instead }),
  };
}

/** A setting for which a zero value in a file means unset. */
export function field<T>(type: ValueType<T>, byDefault: NoInfer<T>, options: FieldOptions<NoInfer<T>> = {}): Field<T> {
  return build(type, byDefault, true, options);
}

/** A setting for which zero in a file is a value. */
export function pointer<T>(
  type: ValueType<T>,
  byDefault: NoInfer<T>,
  options: FieldOptions<NoInfer<T>> = {},
): Field<T> {
  return build(type, byDefault, false, options);
}

export function optional<T>(type: ValueType<T>, options: FieldOptions<NoInfer<T>> = {}): Field<T | undefined> {
  const { check, instead, ...rest } = options;
  const clause = typeof instead === "string" ? () => instead : instead;
  return {
    type,
    byDefault: undefined,
    zeroIsUnset: false,
    ...rest,
    ...(check && { check: (value: T | undefined) => (value === undefined ? undefined : check(value)) }),
    ...(clause && { instead: (value: T | undefined) => (value === undefined ? undefined : clause(value)) }),
  };
}

/** Distinguishes a setting from a group of settings. */
export function isField(node: Field<unknown> | Shape): node is Field<unknown> {
  return typeof node["zeroIsUnset"] === "boolean";
}

/** Every setting of a shape with its path, such as `authentication.anonymous.enabled`. */
export function* fieldsOf(shape: Shape, prefix = ""): Generator<readonly [path: string, field: Field<unknown>]> {
  for (const [name, node] of Object.entries(shape)) {
    if (isField(node)) yield [`${prefix}${name}`, node];
    else yield* fieldsOf(node, `${prefix}${name}.`);
  }
}

/** Name of a setting in messages: its path, and its flag if any. */
export function nameOf(path: string, flag: string | undefined): string {
  return flag ? `${path} (--${flag})` : path;
}
