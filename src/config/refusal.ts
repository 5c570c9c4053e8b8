import { CodedError } from "../lib/errors.ts";

/** A one-line error that stops startup because of one setting: its name, its value and the remedy. @param value shown as shortened JSON;
 *  undefined for a secret or a missing value. */
export function refuse(setting: string, value: unknown, remedy: string): CodedError {
  const shown = value === undefined ? "" : ` is ${shortened(JSON.stringify(value))}`;
  return new CodedError("invalid_argument", `${setting}${shown}${shown === "" ? " " : ": "}${remedy}`);
}

function shortened(json: string): string {
  return json.length > 100 ? `${json.slice(0, 97)}...` : json;
}
