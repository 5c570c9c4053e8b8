import { CodedError, codeOf, messageOf } from "./errors.ts";

/** Joins texts, each once: `[a, b]`, like Go's aggregated errors; a single one as it is. */
export function aggregateText(texts: readonly string[]): string {
  const different = [...new Set(texts)];
  return different.length === 1 ? different.join() : `[${different.join(", ")}]`;
}

/** Combines errors into one with such a text; those of a single text into the first. */
export function aggregated(errors: readonly unknown[]): unknown {
  const texts = errors.map(messageOf);
  if (new Set(texts).size < 2) return errors[0];
  return new CodedError(codeOf(errors[0]), aggregateText(texts), { cause: errors[0] });
}
