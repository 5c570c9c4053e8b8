/** Parses a request target, decoding it once. @param target path and query of the request line. @returns the path's segments, without the
 *  empty one of a trailing slash; undefined for a target that a legitimate client never sends: not a path, an invalid escape, an empty or
 *  dot segment, an escaped slash or NUL. */
export function pathSegments(target: string): readonly string[] | undefined {
  const path = target.split(/[?#]/, 1)[0] ?? "";
  if (!path.startsWith("/")) return undefined;
  const raw = path.slice(1).split("/");
  if (raw.at(-1) === "") raw.pop();
  const segments: string[] = [];
  for (const part of raw) {
    const segment = decode(part);
    if (segment === undefined || segment === "" || segment === "." || segment === ".." || /[/\\\0]/.test(segment))
      return undefined;
    segments.push(segment);
  }
  return segments;
}

function decode(part: string): string | undefined {
  try {
    return decodeURIComponent(part);
  } catch {
    return undefined;
  }
}

/** Area of the kubelet API that a request target belongs to: the first segment of its path, for metrics also the second. */
export function areaOf(target: string): string {
  const [, first = "", second = ""] = target.split(/[?#]/, 1)[0]?.split("/") ?? [];
  return first === "metrics" && second !== "" ? `${first}/${second}` : first;
}

export function queryOf(target: string): URLSearchParams {
  const start = target.indexOf("?");
  return new URLSearchParams(start < 0 ? "" : target.slice(start + 1));
}
