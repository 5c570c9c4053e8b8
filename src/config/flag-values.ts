import { isRecord } from "../lib/record.ts";
import type { Field } from "./schema.ts";
import type { TextMap, ValueType } from "./value-types.ts";

/** Shown instead of a value that messages must not contain. */
const classified = "CLASSIFIED";

/** Every flag with its value as Go's flag library prints it, for /flagz: the given one, else the default of the command line.
 *  @param flags by name, without dashes. @param given parsed values by flag. */
export function flagValues(flags: ReadonlyMap<string, Field<unknown>>, given: ReadonlyMap<string, unknown>): TextMap {
  return Object.fromEntries(
    [...flags].map(([name, field]) => {
      const value = given.has(name) ? given.get(name) : field.byDefault;
      const isHidden = field.secret === true && given.has(name);
      return [name, isHidden ? classified : textOf(field.type, value)];
    }),
  );
}

function textOf(type: ValueType<unknown>, value: unknown): string {
  if (value === undefined) return "";
  return type.print?.(value) ?? printed(type.encode(value));
}

/** A scalar as it is, a list in brackets, a map as sorted pairs. */
function printed(wire: unknown): string {
  if (Array.isArray(wire)) return `[${wire.join(",")}]`;
  if (!isRecord(wire)) return String(wire);
  return Object.entries(wire)
    .map(([key, value]) => `${key}=${String(value)}`)
    .sort()
    .join(",");
}
