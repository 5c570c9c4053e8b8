import type { LogOptions } from "../pipeline.ts";

export type DecodedLogOptions =
  | { readonly kind: "options"; readonly options: LogOptions }
  | { readonly kind: "undecodable" }
  | { readonly kind: "invalid" };

const streams = ["All", "Stdout", "Stderr"] as const;
const maxInt64 = 2n ** 63n - 1n;

class Undecodable extends Error {}

/** Parses the query of a log request: PodLogOptions of v1, and the older `tail`.
 *  @param now milliseconds since the epoch from which `sinceSeconds` counts back, on the clock that stamps the log's lines.
 *  @see https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/#get-read-log-of-the-specified-pod */
export function decodeLogOptions(query: URLSearchParams, now: number): DecodedLogOptions {
  try {
    return decode(query, now);
  } catch (error) {
    if (error instanceof Undecodable) return { kind: "undecodable" };
    throw error;
  }
}

function decode(query: URLSearchParams, now: number): DecodedLogOptions {
  const tail = query.get("tail");
  const tailLines = tail === "all" ? undefined : integer(tail || query.get("tailLines"));
  const limitBytes = integer(query.get("limitBytes"));
  const sinceSeconds = integer(query.get("sinceSeconds"));
  const sinceTime = time(query.get("sinceTime"));
  const stream = streams.find((name) => name === (query.get("stream") ?? "All"));
  const invalid =
    (tailLines !== undefined && tailLines < 0) ||
    (limitBytes !== undefined && limitBytes < 1) ||
    (sinceSeconds !== undefined && (sinceSeconds < 1 || query.has("sinceTime"))) ||
    stream === undefined ||
    (stream !== "All" && tailLines !== undefined);
  if (invalid) return { kind: "invalid" };
  const since = sinceSeconds === undefined ? sinceTime : now - sinceSeconds * 1000;
  const options: LogOptions = {
    follow: flag(query.get("follow")),
    previous: flag(query.get("previous")),
    timestamps: flag(query.get("timestamps")),
    stream,
    ...(tailLines !== undefined && { tailLines }),
    ...(limitBytes !== undefined && { limitBytes }),
    ...(since !== undefined && { since }),
  };
  return { kind: "options", options };
}

/** Kubernetes' rule for booleans in a query: present, and neither `0` nor `false`. */
function flag(value: string | null): boolean {
  return value !== null && value !== "0" && value.toLowerCase() !== "false";
}

function integer(value: string | null): number | undefined {
  if (value === null) return undefined;
  if (!/^[+-]?\d+$/.test(value)) throw new Undecodable();
  const number = BigInt(value.replace(/^\+/, ""));
  if (number > maxInt64 || number < -maxInt64 - 1n) throw new Undecodable();
  return Number(number);
}

/** Milliseconds since the epoch; undefined for an empty value or `null`. */
function time(value: string | null): number | undefined {
  if (value === null || value === "" || value === "null") return undefined;
  if (!/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d([.,]\d+)?(Z|[+-]\d\d:\d\d)$/.test(value)) throw new Undecodable();
  const at = Date.parse(value.replace(",", "."));
  if (Number.isNaN(at)) throw new Undecodable();
  return at;
}
