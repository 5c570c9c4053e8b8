/** Formats a time as in Kubernetes objects: RFC 3339, UTC, whole seconds. @param ms milliseconds since the epoch. */
export function rfc3339(ms: number): string {
  return `${new Date(ms).toISOString().slice(0, 19)}Z`;
}

/** Formats a time as the MicroTime of a Lease: RFC 3339 with microseconds. @param ms milliseconds since the epoch. */
export function microTime(ms: number): string {
  return `${new Date(ms).toISOString().slice(0, -1)}000Z`;
}
