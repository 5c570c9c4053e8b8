import type { ValueType } from "./value-types.ts";

/** One setting: how it is written, what it is when nobody sets it, and whether graftlet heeds it. */
export interface Field<T> {
  readonly type: ValueType<T>;
  readonly byDefault: T;
  /** Where the kubelet has a value rather than a pointer, a zero in a file means unset. */
  readonly zeroIsUnset: boolean;
  /** The flag that sets it, without dashes. */
  readonly flag?: string | undefined;
  /** What to do about a value that is possible by its type but not in fact; undefined when the value is fine. */
  check?(value: T): string | undefined;
  /** For a setting that is not served yet: what happens instead; undefined for values that make no difference. */
  instead?(value: T): string | undefined;
  /** The default of a setting that is not served yet makes a kubelet do something. */
  readonly actsByDefault?: boolean | undefined;
  /** The value must not appear in any message. */
  readonly secret?: boolean | undefined;
}

export interface FieldOptions<T> {
  readonly flag?: string;
  readonly check?: (value: T) => string | undefined;
  /** A clause that completes "is not served yet: …". */
  readonly instead?: string | ((value: T) => string | undefined);
  readonly actsByDefault?: boolean;
  readonly secret?: boolean;
}

/** Settings by name, in groups as the configuration file nests them. */
export interface Shape {
  readonly [name: string]: Field<unknown> | Shape;
}

/** The value that a shape describes, all settings present. */
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

/** A setting whose zero value in a file counts as unset. */
export function field<T>(type: ValueType<T>, byDefault: NoInfer<T>, options: FieldOptions<NoInfer<T>> = {}): Field<T> {
  return build(type, byDefault, true, options);
}

/** A setting whose zero value in a file is meant. */
export function pointer<T>(
  type: ValueType<T>,
  byDefault: NoInfer<T>,
  options: FieldOptions<NoInfer<T>> = {},
): Field<T> {
  return build(type, byDefault, false, options);
}

/** A setting that may stay unset. */
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

/** Tells a setting from a group of settings. */
export function isField(node: Field<unknown> | Shape): node is Field<unknown> {
  return typeof node["zeroIsUnset"] === "boolean";
}

/** Every setting of a shape with its path, `authentication.anonymous.enabled`. */
export function* fieldsOf(shape: Shape, prefix = ""): Generator<readonly [path: string, field: Field<unknown>]> {
  for (const [name, node] of Object.entries(shape)) {
    if (isField(node)) yield [`${prefix}${name}`, node];
    else yield* fieldsOf(node, `${prefix}${name}.`);
  }
}

/** How messages name a setting: by its path, and by its flag where it has one. */
export function nameOf(path: string, flag: string | undefined): string {
  return flag ? `${path} (--${flag})` : path;
}
