import { CodedError } from "../src/lib/errors.ts";

/** The fields of a `providerConfig` by name. */
export type ConfigFields = Readonly<Record<string, unknown>>;

export interface ConfigFieldsOptions {
  /** The provider's name, for messages. */
  readonly provider: string;
  readonly known: readonly string[];
  /** Remedy in the message for a `providerConfig` that is not a map of fields. */
  readonly write: string;
  /** Path of the fields, for messages; `providerConfig` by default. */
  readonly at?: string;
}

/** Reads a `providerConfig` as a map of the provider's fields. @throws CodedError invalid_argument, a sentence with the
 *  remedy. */
export function readConfigFields(
  config: unknown,
  { provider, known, write, at = "providerConfig" }: ConfigFieldsOptions,
): ConfigFields {
  if (typeof config !== "object" || config === null || Array.isArray(config))
    throw invalidField(`${at} of the ${provider} provider is not a map of fields: ${write}.`);
  const unknown = Object.keys(config).find((name) => !known.includes(name));
  if (unknown !== undefined)
    throw invalidField(
      `${at}.${unknown} is not a field of the ${provider} provider: remove it (its fields are ${known.join(", ")}).`,
    );
  return { ...config };
}

/** The path of a unix socket, given as an endpoint (`unix:///run/x.sock`) or a bare path; undefined for anything else. */
export function socketPath(value: unknown): string | undefined {
  const path = typeof value === "string" ? value.replace(/^unix:(\/\/)?/, "") : "";
  return path.startsWith("/") ? path : undefined;
}

/** Creates the error for an invalid field. @param sentence names the field, the problem and the remedy. */
export function invalidField(sentence: string): CodedError {
  return new CodedError("invalid_argument", sentence);
}
