/** Outcome of one attempt of a probe. A `warning` counts as a success; an `error` says nothing of the container and does not
 *  count: the probe itself could not be made. */
export type Outcome =
  | { readonly is: "success" | "warning" | "failure"; readonly output: string }
  | { readonly is: "error"; readonly state: "unknown" | "failure"; readonly error: unknown };

/** Bytes of a container's answer that a probe looks at. */
export const maxOutputBytes = 10 * 1024;

/** A number of seconds as Go prints a duration: 1s, 1m30s, 1h0m0s. */
export function goDuration(seconds: number): string {
  const hours = Math.trunc(seconds / 3600);
  const minutes = Math.trunc((seconds % 3600) / 60);
  const rest = `${seconds % 60}s`;
  if (hours > 0) return `${hours}h${minutes}m${rest}`;
  return minutes > 0 ? `${minutes}m${rest}` : rest;
}
