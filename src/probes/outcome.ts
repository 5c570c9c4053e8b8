/** Outcome of one probe attempt. A `warning` counts as a success; an `error` does not count: the probe itself could not be run. */
export type ProbeOutcome =
  | { readonly kind: "success" | "warning" | "failure"; readonly output: string }
  | { readonly kind: "error"; readonly state: "unknown" | "failure"; readonly error: unknown };

/** Maximum bytes of a container's response that a probe reads. */
export const maxOutputBytes = 10 * 1024;

/** Formats seconds as Go formats a duration: 1s, 1m30s, 1h0m0s. */
export function goDurationOfSeconds(seconds: number): string {
  const hours = Math.trunc(seconds / 3600);
  const minutes = Math.trunc((seconds % 3600) / 60);
  const rest = `${seconds % 60}s`;
  if (hours > 0) return `${hours}h${minutes}m${rest}`;
  return minutes > 0 ? `${minutes}m${rest}` : rest;
}
