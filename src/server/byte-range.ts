/** The requested part of a file. */
export type RequestedRange =
  | { readonly kind: "all" }
  | { readonly kind: "part"; readonly start: number; readonly length: number }
  /** @param text why the range is invalid. */
  | { readonly kind: "invalid"; readonly text: string; readonly overlaps: boolean };

const all: RequestedRange = { kind: "all" };
const invalid: RequestedRange = { kind: "invalid", text: "invalid range", overlaps: true };

/** Parses a `Range` header as Go's file server does. Several ranges at once count as none: a server may send the whole.
 *  @param size bytes of the file. @see https://www.rfc-editor.org/rfc/rfc9110#name-range-requests */
export function requestedRange(header: string | undefined, size: number): RequestedRange {
  if (!header) return all;
  if (!header.startsWith("bytes=")) return invalid;
  const ranges = header
    .slice("bytes=".length)
    .split(",")
    .map((range) => range.trim())
    .filter((range) => range !== "");
  const requested = ranges.map((range) => parseRange(range, size));
  if (requested.some((part) => part === "invalid")) return invalid;
  const parts = requested.filter((part) => typeof part === "object");
  if (ranges.length > 0 && parts.length === 0 && size > 0)
    return { kind: "invalid", text: "invalid range: failed to overlap", overlaps: false };
  const [part] = parts;
  return part && parts.length === 1 ? { kind: "part", ...part } : all;
}

function parseRange(range: string, size: number): { start: number; length: number } | "invalid" | "beyond" {
  const [, first = "", last = ""] = /^(\d*)\s*-\s*(\d*)$/.exec(range) ?? [];
  if (first === "" && last === "") return "invalid";
  if (first === "") {
    const length = Math.min(Number(last), size);
    return { start: size - length, length };
  }
  const start = Number(first);
  if (last !== "" && Number(last) < start) return "invalid";
  if (start >= size) return "beyond";
  const end = last === "" ? size : Math.min(Number(last) + 1, size);
  return { start, length: end - start };
}
