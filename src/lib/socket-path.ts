/** Maximum length of a Unix socket path, bytes, without the terminating NUL. @see unix(7) */
export const maxSocketPathBytes = 107;

/** True for a socket whose path does not fit into an address: it can be reached from its directory only. */
export function isLongSocketPath(path: string): boolean {
  return Buffer.byteLength(path) > maxSocketPathBytes;
}
