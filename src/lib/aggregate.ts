import { CodedError, codeOf, messageOf } from "./errors.ts";

/** Joins texts without duplicates as `[a, b]`, like Go's aggregated errors; a single text is returned as is. */
export function aggregateText(texts: readonly string[]): string {
  const different = [...new Set(texts)];
  return different.length === 1 ? different.join() : `[${different.join(", ")}]`;
}

/** Joins errors as the kubelet's aggregate does; if all have the same text, the first error is returned. */
export function aggregated(errors: readonly unknown[]): unknown {
  const texts = errors.map(messageOf);
  if (new Set(texts).size < 2) return errors[0];
  return new CodedError(codeOf(errors[0]), aggregateText(texts), { cause: errors[0] });
}
