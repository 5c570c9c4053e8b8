/** How long the sides of a stream wait for each other, milliseconds: the values of the kubelet's streaming server.
 *  @see https://github.com/kubernetes/cri-streaming */

/** Without a byte either way, a connection ends after 4 hours. */
export const idleMs = 4 * 60 * 60 * 1000;
/** How long a client may take to open the streams it needs. */
export const creationMs = 30_000;
/** How long an endpoint is there to be used. */
export const tokenMs = 60_000;
/** How long a client may take to hang up once all is said. */
export const lingerMs = 10_000;
