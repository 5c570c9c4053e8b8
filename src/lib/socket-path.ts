/** The most bytes of a unix socket's path, without the NUL at its end. @see unix(7) */
export const longestSocketPath = 107;

/** True for a socket that can be reached only from its directory: its path does not fit into an address. */
export function isLongSocketPath(path: string): boolean {
  return Buffer.byteLength(path) > longestSocketPath;
}
