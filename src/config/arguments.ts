import { nearest } from "./names.ts";
import { refuse } from "./refusal.ts";
import { type Field, fieldsOf, type Shape } from "./schema.ts";

/** A parsed command line: a request for help or the version, or flag values by name (without dashes). */
export type Arguments =
  | { readonly kind: "help" }
  | { readonly kind: "version" }
  | { readonly kind: "flags"; readonly values: ReadonlyMap<string, unknown> };

export function flagsOf(...shapes: readonly Shape[]): Map<string, Field<unknown>> {
  const flags = new Map<string, Field<unknown>>();
  for (const shape of shapes) {
    for (const [, field] of fieldsOf(shape)) if (field.flag) flags.set(field.flag, field);
  }
  return flags;
}

/** Parses a command line like the kubelet's flag library: `--flag value`, `--flag=value`, `-v4`, `_` for `-`, switches without a value. A
 *  repeated flag extends lists and maps; otherwise the last value wins. @throws CodedError invalid_argument */
export function readArguments(argv: readonly string[], flags: ReadonlyMap<string, Field<unknown>>): Arguments {
  const values = new Map<string, unknown>();
  const rest = [...argv];
  for (let argument = rest.shift(); argument !== undefined; argument = rest.shift()) {
    const { name, given } = split(argument);
    if (name === "help" && given !== "false") return { kind: "help" };
    if (name === "version" && given !== "false") return { kind: "version" };
    if (name === "help" || name === "version") continue;
    const field = flags.get(name);
    if (!field) throw unknownFlag(name, flags.keys());
    const text = given ?? (field.type.bare ? "true" : rest.shift());
    if (text === undefined) throw refuse(`--${name}`, undefined, `needs a value: expected ${field.type.expected}`);
    const value = field.type.parse(text, values.get(name));
    if (value === undefined)
      throw refuse(`--${name}`, field.secret ? undefined : text, `expected ${field.type.expected}`);
    values.set(name, value);
  }
  return { kind: "flags", values };
}

const shortNames: Readonly<Record<string, string>> = { h: "help", o: "output" };

/** Splits an argument into the flag's name and its attached value, if any. */
function split(argument: string): { readonly name: string; readonly given: string | undefined } {
  const long = /^--([^=]+)(?:=(.*))?$/s.exec(argument);
  if (long) return { name: (long[1] ?? "").replaceAll("_", "-"), given: long[2] };
  const short = /^-([hov])(?:=?(.+))?$/s.exec(argument);
  if (short) return { name: shortNames[short[1] ?? ""] ?? "v", given: short[2] };
  if (argument.startsWith("-") && argument !== "-" && argument !== "--") {
    throw refuse(argument, undefined, `is not a flag; write flags with two dashes, as in -${argument}`);
  }
  throw refuse("argument", argument, "graftlet takes flags only; write the value of a switch as --flag=value");
}

function unknownFlag(name: string, known: Iterable<string>): Error {
  const near = nearest(name, known);
  return refuse(
    `--${name}`,
    undefined,
    `is not a flag of graftlet; ${near ? `did you mean --${near}?` : "--help lists the flags"}`,
  );
}
