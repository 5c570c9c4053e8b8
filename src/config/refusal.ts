import { CodedError } from "../lib/errors.ts";

/** The sentence that ends the start over one setting: what it is, its value, and what to do.
 *  @param value shown as JSON, shortened; undefined where it must not or cannot be shown. */
export function refuse(setting: string, value: unknown, remedy: string): CodedError {
  const shown = value === undefined ? "" : ` is ${shortened(JSON.stringify(value))}`;
  return new CodedError("invalid_argument", `${setting}${shown}${shown === "" ? " " : ": "}${remedy}`);
}

function shortened(json: string): string {
  return json.length > 100 ? `${json.slice(0, 97)}...` : json;
}
