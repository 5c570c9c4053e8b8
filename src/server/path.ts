/** Takes a request target apart, decoding it once.
 *  @param target as the request line has it: path and query.
 *  @returns the path's segments, without the empty one of a trailing slash; undefined for what no honest client sends:
 *  a target that is no path, a bad escape, an empty or dot segment, an escaped slash or NUL. */
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

/** The part of the kubelet API that a request target lies in: the first segment of its path, and the second of metrics. */
export function areaOf(target: string): string {
  const [, first = "", second = ""] = target.split(/[?#]/, 1)[0]?.split("/") ?? [];
  return first === "metrics" && second !== "" ? `${first}/${second}` : first;
}

/** The query of a request target. */
export function queryOf(target: string): URLSearchParams {
  const start = target.indexOf("?");
  return new URLSearchParams(start < 0 ? "" : target.slice(start + 1));
}
