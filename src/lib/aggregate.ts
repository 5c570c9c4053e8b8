import { CodedError, codeOf, messageOf } from "./errors.ts";

/** Combines errors into one, each text once: `[a, b]`, like Go's aggregated errors; a single one as it is. */
export function aggregated(errors: readonly unknown[]): unknown {
  const texts = [...new Set(errors.map(messageOf))];
  if (texts.length < 2) return errors[0];
  return new CodedError(codeOf(errors[0]), `[${texts.join(", ")}]`, { cause: errors[0] });
}
