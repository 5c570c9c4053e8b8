import { isRecord } from "../lib/record.ts";
import type { FileVerbosity } from "../lib/verbosity.ts";
import type { Taint } from "../objects.ts";
import { isLabelValue, isQualifiedName } from "./names.ts";
import { parseInteger, quantitySign } from "./go-values.ts";
import { int32, int64, mapOf, printPairs, textMap, type TextMap, uint32, type ValueType } from "./value-types.ts";

/** The record, if it has only these keys. */
function recordWith(wire: unknown, ...keys: readonly string[]): Record<string, unknown> | undefined {
  return isRecord(wire) && Object.keys(wire).every((key) => keys.includes(key)) ? wire : undefined;
}

function allOf<T>(wire: unknown, read: (item: unknown) => T | undefined): T[] | undefined {
  if (!Array.isArray(wire)) return undefined;
  const items = wire.map(read);
  return items.every((item) => item !== undefined) ? items : undefined;
}

const effects = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

function decodeTaint(wire: unknown): Taint | undefined {
  const taint = recordWith(wire, "key", "value", "effect");
  if (!taint || typeof taint["key"] !== "string" || typeof taint["effect"] !== "string") return undefined;
  const value = taint["value"] ?? "";
  if (typeof value !== "string" || !isQualifiedName(taint["key"]) || !isLabelValue(value)) return undefined;
  if (!effects.includes(taint["effect"])) return undefined;
  return { key: taint["key"], effect: taint["effect"], ...(value !== "" && { value }) };
}

/** `key=value:effect` or `key:effect`. */
function parseTaint(text: string): Taint | undefined {
  const [pair = "", effect, rest] = text.split(":");
  const [key, value, more] = pair.split("=");
  if (rest !== undefined || more !== undefined) return undefined;
  return decodeTaint({ key, effect, ...(value !== undefined && { value }) });
}

export const taints: ValueType<readonly Taint[]> = {
  expected:
    "a list of taints {key, value, effect: NoSchedule | PreferNoSchedule | NoExecute} (in a flag: key=value:effect)",
  decode: (wire) => allOf(wire, decodeTaint),
  parse: (text) =>
    text === "" ? [] : allOf(text.split(","), (one) => (typeof one === "string" ? parseTaint(one) : undefined)),
  encode: (value) => value,
  print: (value) => value.map(({ key, value: given = "", effect }) => `${key}=${given}:${effect}`).join(","),
};

export interface MemoryReservation {
  readonly numaNode: number;
  /** Quantities by resource: `memory` or `hugepages-<size>`. */
  readonly limits: TextMap;
}

function decodeReservation(wire: unknown): MemoryReservation | undefined {
  const record = recordWith(wire, "numaNode", "limits");
  const numaNode = int32.decode(record?.["numaNode"]);
  const limits = mapOf(record?.["limits"], (value) => {
    const quantity = typeof value === "number" ? String(value) : value;
    return typeof quantity === "string" && quantitySign(quantity) === 1 ? quantity : undefined;
  });
  if (numaNode === undefined || !limits) return undefined;
  return Object.keys(limits).every((name) => name === "memory" || name.startsWith("hugepages-"))
    ? { numaNode, limits }
    : undefined;
}

/** `0:memory=1Gi,hugepages-1M=2Gi` */
function parseReservation(text: string): MemoryReservation | undefined {
  const [node = "", list = "", rest] = text.split(":");
  if (rest !== undefined) return undefined;
  return decodeReservation({ numaNode: parseInteger(node), limits: textMap({ sign: "=" }).parse(list, undefined) });
}

export const memoryReservations: ValueType<readonly MemoryReservation[]> = {
  expected:
    "a list of {numaNode, limits} with memory or hugepages above zero (in a flag: 0:memory=1Gi,hugepages-2Mi=1Gi)",
  decode: (wire) => allOf(wire, decodeReservation),
  parse: (text, before = []) => {
    if (text === "") return [];
    const added = allOf(text.split(";"), (one) => (typeof one === "string" ? parseReservation(one) : undefined));
    return added && [...before, ...added];
  },
  encode: (value) => value,
  print: (value) =>
    value
      .map(({ numaNode, limits }) => `${numaNode}:${printPairs(limits, "=")}`)
      .sort()
      .join(","),
};

export interface PriorityGrace {
  readonly priority: number;
  readonly shutdownGracePeriodSeconds: number;
}

export const priorityGraces: ValueType<readonly PriorityGrace[]> = {
  expected: "a list of {priority, shutdownGracePeriodSeconds}",
  decode: (wire) =>
    allOf(wire, (item) => {
      const record = recordWith(item, "priority", "shutdownGracePeriodSeconds");
      const priority = int32.decode(record?.["priority"]);
      const seconds = int64.decode(record?.["shutdownGracePeriodSeconds"]);
      return priority === undefined || seconds === undefined
        ? undefined
        : { priority, shutdownGracePeriodSeconds: seconds };
    }),
  parse: () => undefined,
  encode: (value) => value,
};

function decodeVerbosity(wire: unknown): FileVerbosity | undefined {
  const record = recordWith(wire, "filePattern", "verbosity");
  const filePattern = record?.["filePattern"];
  const verbosity = uint32.decode(record?.["verbosity"]);
  if (typeof filePattern !== "string" || !/^[^=,]+$/.test(filePattern) || verbosity === undefined) return undefined;
  return { filePattern, verbosity };
}

export const fileVerbosities: ValueType<readonly FileVerbosity[]> = {
  expected: "a list of {filePattern, verbosity} (in a flag: pattern=N)",
  decode: (wire) => allOf(wire, decodeVerbosity),
  parse: (text) =>
    allOf(
      text.split(",").filter((one) => one !== ""),
      (one) => {
        const [filePattern, level = ""] = String(one).split("=");
        return decodeVerbosity({ filePattern, verbosity: parseInteger(level) });
      },
    ),
  encode: (value) => value,
  print: (value) => value.map(({ filePattern, verbosity }) => `${filePattern}=${verbosity}`).join(","),
};

/** A group of fields, which is decoded separately. */
export const group: ValueType<Readonly<Record<string, unknown>>> = {
  expected: "a group of fields",
  decode: (wire) => (isRecord(wire) ? wire : undefined),
  parse: () => undefined,
  encode: (value) => value,
};

/** A list of such groups. */
export function groups(expected: string): ValueType<readonly Readonly<Record<string, unknown>>[]> {
  return {
    expected,
    decode: (wire) => (Array.isArray(wire) && wire.every(isRecord) ? wire : undefined),
    parse: () => undefined,
    encode: (value) => value,
  };
}

function decodeVariable(wire: unknown): { readonly name: string; readonly value: string } | undefined {
  const { name, value } = recordWith(wire, "name", "value") ?? {};
  return typeof name === "string" && typeof value === "string" ? { name, value } : undefined;
}

/** Environment variables of a program. */
export const environment: ValueType<readonly { readonly name: string; readonly value: string }[]> = {
  expected: "a list of variables {name, value}",
  decode: (wire) => allOf(wire, decodeVariable),
  parse: () => undefined,
  encode: (value) => value,
};
