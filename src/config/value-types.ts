import { isIP } from "node:net";
import { goDuration, parseDuration } from "../lib/go-duration.ts";
import { isRecord } from "../lib/record.ts";
import { parseBool, parseInteger, quantitySign } from "./go-values.ts";

/** Syntax of a value in a file and on the command line. The result `undefined` means: not of this type. */
export interface ValueType<T> {
  /** Expected syntax, with an example; follows "expected" in messages. */
  readonly expected: string;
  /** Go's zero value: in a file, it means unset for fields that are not pointers. */
  readonly zero?: T;
  /** True if the flag without a value means `true`. */
  readonly bare?: boolean;
  decode(wire: unknown): T | undefined;
  /** @param before the value of earlier uses of the same flag. */
  parse(text: string, before: T | undefined): T | undefined;
  encode(value: T): unknown;
  /** Formats the value for the command line, if that differs from its encoding. */
  print?(value: T): string;
}

export const bool: ValueType<boolean> = {
  expected: "true or false",
  bare: true,
  decode: (wire) => (typeof wire === "boolean" ? wire : undefined),
  parse: parseBool,
  encode: (value) => value,
};

export const text: ValueType<string> = {
  expected: 'a string such as "a"',
  zero: "",
  decode: (wire) => (typeof wire === "string" ? wire : undefined),
  parse: (value) => value,
  encode: (value) => value,
};

/** A resource quantity such as `64Mi`, kept as written. */
export const quantity: ValueType<string> = {
  expected: 'a quantity such as "64Mi"',
  decode: (wire) =>
    quantity.parse(typeof wire === "number" ? String(wire) : typeof wire === "string" ? wire : "", undefined),
  parse: (value) => (quantitySign(value) === undefined ? undefined : value),
  encode: (value) => value,
};

/** Stored in milliseconds, written as `1m30s`. */
export const duration: ValueType<number> = {
  expected: 'a duration such as "1m30s"',
  zero: 0,
  decode: (wire) => (typeof wire === "string" ? parseDuration(wire) : undefined),
  parse: parseDuration,
  encode: goDuration,
};

/** A duration or a number of nanoseconds, as in the logging configuration. */
export const durationOrNanoseconds: ValueType<number> = {
  ...duration,
  decode: (wire) => (typeof wire === "number" && Number.isInteger(wire) ? wire / 1e6 : duration.decode(wire)),
};

function integerWithin(low: number, high: number): ValueType<number> {
  const within = (value: number | undefined): number | undefined =>
    value !== undefined && Number.isInteger(value) && value >= low && value <= high ? value : undefined;
  return {
    expected: `a whole number from ${low} to ${high}`,
    zero: 0,
    decode: (wire) => (typeof wire === "number" ? within(wire) : undefined),
    parse: (value) => within(parseInteger(value)),
    encode: (value) => value,
  };
}
export const int32 = integerWithin(-(2 ** 31), 2 ** 31 - 1);
export const uint32 = integerWithin(0, 2 ** 32 - 1);
/** Exact up to 2⁵³, far beyond any useful value of these fields. */
export const int64 = integerWithin(Number.MIN_SAFE_INTEGER, Number.MAX_SAFE_INTEGER);

export const decimal: ValueType<number> = {
  expected: "a number such as 0.9",
  decode: (wire) => (typeof wire === "number" && Number.isFinite(wire) ? wire : undefined),
  parse: (value) => (value !== "" && Number.isFinite(Number(value)) ? Number(value) : undefined),
  encode: (value) => value,
};

export const ipAddress: ValueType<string> = {
  ...text,
  expected: 'an IP address such as "0.0.0.0"',
  decode: (wire) => (typeof wire === "string" && (wire === "" || isIP(wire) !== 0) ? wire : undefined),
  parse: (value) => (isIP(value.trim()) === 0 ? undefined : value.trim()),
};

export function oneOf<const W extends string>(...words: readonly W[]): ValueType<W> {
  const find = (value: unknown): W | undefined => words.find((word) => word === value);
  return {
    expected: words.map((word) => (word === "" ? '""' : word)).join(" or "),
    decode: find,
    parse: find,
    encode: (value) => value,
  };
}

function listOf<T>(
  item: (wire: unknown) => T | undefined,
  expected: string,
  fromText: (text: string) => T | undefined,
): ValueType<readonly T[]> {
  const all = (items: readonly unknown[]): T[] | undefined => {
    const values = items.map(item);
    return values.every((value) => value !== undefined) ? values : undefined;
  };
  return {
    expected,
    decode: (wire) => (Array.isArray(wire) ? all(wire) : undefined),
    parse: (value, before = []) => {
      const added = value === "" ? [] : value.split(",").map(fromText);
      return added.every((one) => one !== undefined) ? [...before, ...added] : undefined;
    },
    encode: (value) => value,
  };
}
export const texts = listOf(text.decode, 'a list of strings such as ["a", "b"] (in a flag: a,b)', (value) => value);
export const int32s = listOf(int32.decode, "a list of whole numbers such as [29, 23]", parseInteger);

export type TextMap = Readonly<Record<string, string>>;

/** A map from key to value; flags write it as `key<sign>value,…` and may be repeated. */
export function textMap(options: {
  readonly sign: "=" | "<";
  readonly split?: boolean;
  readonly bareKeys?: boolean;
}): ValueType<TextMap> {
  return {
    expected: `a map of strings, values in quotes (in a flag: key${options.sign}value)`,
    decode: (wire) => mapOf(wire, (value) => (typeof value === "string" ? value : undefined)),
    parse: (value, before = {}) => {
      const map: Record<string, string> = { ...before };
      for (const pair of options.split === false ? [value] : value.split(",")) {
        if (pair === "") continue;
        const at = pair.indexOf(options.sign);
        if (at < 0 && !options.bareKeys) return undefined;
        map[(at < 0 ? pair : pair.slice(0, at)).trim()] = at < 0 ? "" : pair.slice(at + 1).trim();
      }
      return map;
    },
    encode: (value) => value,
    print: (value) => printPairs(value, options.sign),
  };
}

/** A map from name to boolean, as for feature gates; repeated flags are merged. */
export const boolMap: ValueType<Readonly<Record<string, boolean>>> = {
  expected: "a map from name to true or false (in a flag: A=true,B=false)",
  decode: (wire) => mapOf(wire, (value) => (typeof value === "boolean" ? value : undefined)),
  parse: (value, before = {}) => {
    const map: Record<string, boolean> = { ...before };
    for (const pair of value.split(",").filter((one) => one !== "")) {
      const at = pair.indexOf("=");
      const state = parseBool(pair.slice(at + 1).trim());
      if (at < 0 || state === undefined) return undefined;
      map[pair.slice(0, at).trim()] = state;
    }
    return map;
  },
  encode: (value) => value,
};

/** HTTP headers, each with several values. */
export const headers: ValueType<Readonly<Record<string, readonly string[]>>> = {
  expected: "a map from header to a list of strings (in a flag: name:value)",
  decode: (wire) => mapOf(wire, (value) => texts.decode(value)),
  parse: (value, before = {}) => {
    const map: Record<string, readonly string[]> = { ...before };
    for (const pair of value.split(",").filter((one) => one !== "")) {
      const at = pair.indexOf(":");
      if (at < 0) return undefined;
      const name = pair.slice(0, at).trim();
      map[name] = [...(map[name] ?? []), pair.slice(at + 1).trim()];
    }
    return map;
  },
  encode: (value) => value,
  print: (value) =>
    Object.entries(value)
      .flatMap(([name, values]) => values.map((one) => `${name}:${one}`))
      .sort()
      .join(","),
};

/** The sorted pairs of a map, as flags write them. */
export function printPairs(map: TextMap, sign: string): string {
  return Object.entries(map)
    .map(([key, value]) => `${key}${sign}${value}`)
    .sort()
    .join(",");
}

/** Decodes each value of a record; undefined if it is not a record or a value is invalid. */
export function mapOf<V>(wire: unknown, read: (value: unknown) => V | undefined): Record<string, V> | undefined {
  if (!isRecord(wire)) return undefined;
  const map: Record<string, V> = {};
  for (const [key, value] of Object.entries(wire)) {
    const known = read(value);
    if (known === undefined) return undefined;
    map[key] = known;
  }
  return map;
}
